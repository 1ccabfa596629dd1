"""Load any split of any task from the data folder, an installed package or the Hub, in one shape."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa

from rosewood.data.embedded import embedded_file, embedded_table
from rosewood.data.examples import examples, has_lists, listed_labels
from rosewood.data.files import RawTable, check_columns, file_digest, matching_files, read_file
from rosewood.data.splitting import carve, carve_groups, distinct, spread, text_keys
from rosewood.data.tasks import (
    EVERY_NOISE,
    Carve,
    EmbeddedSource,
    FolderSource,
    HubSource,
    MemorySource,
    Task,
    build_task,
    label_key,
)
from rosewood.errors import AbsentError, DataError
from rosewood.results.files import fingerprint_of

DATA_VARIABLE = "ROSEWOOD_DATA"
_INTEGER = re.compile(r"-?[0-9]+")
_FRACTION = re.compile(r"-?[0-9]*\.[0-9]*[1-9][0-9]*")
_NO_NAMES = {"train", "training", "data", "dataset"}
_log = logging.getLogger(__name__)


def load_split(
    task: Task,
    split: str,
    data_dir: str | Path | None = None,
    size: int | None = None,
    seed: int = 0,
    multi_label: bool = False,
) -> datasets.Dataset:
    """Load one split: the text columns, then the integer `label`, then all other columns of the source.

    The data folder comes first, then an installed package, then the Hub.

    Args:
        task: what `load_task` returns.
        split: the name of a split, such as train, validation or test.
        data_dir: the data folder; by default the one that ROSEWOOD_DATA names.
        size: at most that many rows, a seeded subset with the label shares of the whole.
        seed: of the subset.
        multi_label: whether the caller can use lists as labels: a 0.0 or 1.0 for each label of a multi-label task.

    Returns:
        The rows.

    Raises:
        DataError: the split cannot be loaded, or its rows cannot be used.

    Example:
        >>> from rosewood import load_task
        >>> load_split(load_task("reviews"), "test", size=4).num_rows
        4
    """
    if task.multi_label and not multi_label:
        raise DataError(
            f"task {task.name} has several labels per text. It can be trained, evaluated and attacked; analyses need "
            "one label per text"
        )
    table = _table(task, split, _root(data_dir))
    if task.split(split).role == "train" and len(set(table.columns["label"])) < 2:
        first = table.columns["label"][0]
        only = list(first) if task.multi_label else task.labels[first]
        raise DataError(f"{table.name}: all {len(table)} training rows are {only!r}, expected two labels or more")
    if size is not None:
        table = _subset(table, task, size, seed)
    return _dataset(table, task)


def origin(task: Task, split: str, data_dir: str | Path | None = None) -> str:
    """Where `load_split` takes a split from, in a few words."""
    rule = task.split(split).carve
    if rule:
        return f"{rule.share:.0%} of {rule.source}, {origin(task, rule.source, data_dir)}"
    source = _source(task, split, _root(data_dir))
    if isinstance(source, MemorySource):
        return source.table.name
    if isinstance(source, FolderSource):
        return f"folder: {source.file}{f' ({source.key})' if source.key else ''}"
    if isinstance(source, HubSource):
        return f"hub: {' '.join(filter(None, [source.dataset, source.config, source.split]))}"
    return f"package: {source.package} ({source.part})"


def needs_hub(task: Task, split: str, data_dir: str | Path | None = None) -> bool:
    """Whether `load_split` would ask the Hub; a split that is nowhere to be found is an AbsentError."""
    rule = task.split(split).carve
    return isinstance(_source(task, rule.source if rule else split, _root(data_dir)), HubSource)


def source_identity(task: Task, split: str, data_dir: str | Path | None = None) -> str:
    """A hash that changes when `load_split` would give other rows, without reading them as data.

    For a data set on the Hub, only the name and the revision count; a split that is not available is "absent".
    """
    root, rule = _root(data_dir), task.split(split).carve
    name = rule.source if rule else split
    try:
        source = _source(task, name, root)
        files = _files(source, root) if isinstance(source, FolderSource) else []
        files += [embedded_file(source.package, source.part)] if isinstance(source, EmbeddedSource) else []
    except AbsentError:
        return "absent"
    taken = task.carved_from(name)
    parts: list[Any] = [split, source.model_dump(mode="json"), [file_digest(file) for file in files]]
    parts += [taken and taken.model_dump(mode="json"), task.text, task.labels, task.replace]
    return fingerprint_of(parts)


def fingerprint(dataset: datasets.Dataset) -> str:
    """A hash of the texts and labels, in order: the columns up to `label`, as `load_split` puts them."""
    names = dataset.column_names[: dataset.column_names.index("label") + 1]
    digest = sha256()
    for row in zip(*(dataset[name][:] for name in names), strict=True):
        digest.update(json.dumps(row).encode() + b"\n")
    return digest.hexdigest()[:16]


def task_from_files(
    train_file: str | Path,
    eval_file: str | Path | None = None,
    *,
    text_columns: Sequence[str],
    label_column: str = "label",
    test_file: str | Path | None = None,
) -> Task:
    """A task from a user's own files; labels are those of the training file, sorted.

    Without `eval_file` a tenth of the training file becomes the validation split. All files are read and
    checked here, so that a bad test file does not show up after hours of training.
    """
    train = _absolute(train_file)
    columns = {} if label_column == "label" else {label_column: "label"}
    splits: dict[str, Any] = {
        name: {"folder": {"file": str(_absolute(file)), "columns": columns}}
        for name, file in (("train", train), ("validation", eval_file), ("test", test_file))
        if file is not None
    }
    splits.setdefault("validation", {"carve": {"from": "train", "share": 0.1}})
    raw: dict[str, Any] = {"name": _task_name(train), "title": train.name, "text": list(text_columns), "splits": splits}
    labels, several = _labels_in(train, text_columns, label_column)
    raw |= {"noise": EVERY_NOISE, "labels": labels, "multi_label": several}
    task = build_task(raw, "The task made from your files")
    for file in (eval_file, test_file):
        if file is not None:
            check_columns(_absolute(file), list(read_file(_absolute(file)).columns), text_columns, label_column)
    for name in task.splits:
        load_split(task, name, multi_label=True)
    return task


def _absolute(file: str | Path) -> Path:
    try:
        return Path(file).resolve()
    except (OSError, ValueError, RuntimeError) as error:  # a null byte, a loop of links
        raise DataError(f"{str(file)!r} is not the name of a file ({error})") from None


def _task_name(file: Path) -> str:
    """The name of the file or, where that only says what a file is for (train.jsonl), that of its folder."""
    return file.stem if file.stem.casefold() not in _NO_NAMES else file.parent.name or file.stem


def _labels_in(path: Path, text_columns: Sequence[str], column: str) -> tuple[list[str], bool]:
    """The distinct labels of a file, sorted as numbers if all are, and whether a text has several."""
    columns = read_file(path).columns
    check_columns(path, list(columns), text_columns, column)
    several = has_lists(columns[column])
    listed = listed_labels(columns[column]) if several else map(label_key, columns[column])
    found = set(listed) - {""}
    if len(found) < 2:
        got = ", ".join(map(repr, found)) or "none"
        raise DataError(f"{path}: expected two labels or more in column {column!r}, got {got}")
    refuse_fractions(found, f"{path}, column {column!r}")
    return sorted(found, key=int) if all(map(_INTEGER.fullmatch, found)) else sorted(found), several


def refuse_fractions(labels: Iterable[str], where: str) -> None:
    """Refuse labels that are numbers to predict, not classes."""
    fraction = next(filter(_FRACTION.fullmatch, sorted(labels)), None)
    if fraction:
        raise DataError(
            f"{where}: expected names or whole numbers as labels, got {fraction}. Labels such as this are numbers to "
            "predict (regression), which commands do not do: only RobustTrainer trains such models, with a recipe that "
            "compares no predictions"
        )


def _root(data_dir: str | Path | None) -> Path | None:
    chosen = data_dir or os.environ.get(DATA_VARIABLE)
    if not chosen:
        return None
    if not Path(chosen).is_dir():
        raise DataError(f"the data folder {chosen} does not exist; correct --data-dir or {DATA_VARIABLE}")
    return Path(chosen)


def _source(task: Task, name: str, root: Path | None) -> FolderSource | EmbeddedSource | HubSource | MemorySource:
    split = task.split(name)
    if split.memory:
        return split.memory
    if split.folder and (root or Path(split.folder.file).is_absolute()):
        return split.folder
    source = split.hub if split.hub and _is_absent(split.embedded) else split.embedded
    if source is None:
        beside = f", or put {split.folder.file} beside the task's YAML file" if split.folder else ""
        raise AbsentError(
            f"split {name} of task {task.name} is a file in the data folder: name the folder with --data-dir "
            f"or {DATA_VARIABLE}{beside}"
        )
    return source


def _is_absent(source: EmbeddedSource | None) -> bool:
    try:
        return source is None or not embedded_file(source.package, source.part)
    except AbsentError:
        return True


def _files(source: FolderSource, root: Path | None) -> list[Path]:
    """The file, or those that fit the pattern, by name."""
    path = (root or Path()) / source.file
    return matching_files(path) if root or path.is_absolute() else []


def _read_files(files: list[Path], source: FolderSource) -> RawTable:
    tables = [read_file(file, source.key) for file in files]
    if len(tables) == 1:
        return tables[0]
    names = dict.fromkeys(name for table in tables for name in table.columns)
    columns = {name: [v for t in tables for v in t.columns.get(name, [None] * len(t))] for name in names}
    columns["file"] = [file.stem for file, table in zip(files, tables, strict=True) for _ in range(len(table))]
    return RawTable(source.file, columns, range(1, len(columns["file"]) + 1), unit="row of all files together")


def _read(task: Task, name: str, root: Path | None) -> RawTable:
    source, split = _source(task, name, root), task.split(name)
    if isinstance(source, MemorySource):
        return examples(source.table, task, source)
    if isinstance(source, EmbeddedSource):
        return examples(embedded_table(source.package, source.part), task, source)
    if isinstance(source, HubSource):
        hint = "check the connection"
        if split.folder:
            hint += f", or point --data-dir or {DATA_VARIABLE} at a folder that has {split.folder.file}"
        return examples(read_hub(source, hint), task, source)
    files = _files(source, root)
    if not files:
        path = (root or Path()) / source.file
        instead = " or leave the data folder out to use the Hub" if split.hub else ""
        raise AbsentError(f"{path}: no such file (split {name} of task {task.name}); put it there{instead}")
    return examples(_read_files(files, source), task, source)


def _table(task: Task, name: str, root: Path | None) -> RawTable:
    own = task.split(name).carve
    if own:
        return _divided(task, own, root)[1]
    taken = task.carved_from(name)
    return _divided(task, taken, root)[0] if taken else _read(task, name, root)


def _divided(task: Task, rule: Carve, root: Path | None) -> tuple[RawTable, RawTable]:
    """What is left of the split, and what is carved from it."""
    whole = _read(task, rule.source, root)
    kept = whole.take(distinct(text_keys([whole.columns[f] for f in task.text]), whole.columns["label"]))
    _log.info("%s: %d of %d rows left without duplicates", whole.name, len(kept), len(whole))
    if rule.group:
        taken = set(carve_groups(text_keys([kept.columns[rule.group]]), rule.share, rule.seed))
    else:
        keys = text_keys([kept.columns[field] for field in task.text])
        taken = set(carve(keys, kept.columns["label"], rule.share, rule.seed))
    rest = [i for i in range(len(kept)) if i not in taken]
    if not rest:
        raise DataError(
            f"{whole.name}: too few rows to divide: of {len(whole)} there are {len(kept)} left without repeated texts "
            "and without texts that occur with different labels"
        )
    return kept.take(rest), kept.take(sorted(taken))


def _subset(table: RawTable, task: Task, size: int, seed: int) -> RawTable:
    if size < 1:
        raise DataError(f"expected a size of at least 1, got {size}")
    keys = text_keys([table.columns[field] for field in task.text])
    return table.take(sorted(spread(keys, table.columns["label"], seed)[:size]))


def _dataset(table: RawTable, task: Task) -> datasets.Dataset:
    arrow = pa.table({name: _arrow(values) for name, values in table.columns.items()})
    features = datasets.Features.from_arrow_schema(arrow.schema)
    features["label"] = (
        datasets.List(datasets.Value("float32")) if task.multi_label else datasets.ClassLabel(names=task.labels)
    )
    return datasets.Dataset(arrow.cast(features.arrow_schema), info=datasets.DatasetInfo(features=features))


def _arrow(values: list[Any]) -> pa.Array:
    """A kept column whose values Arrow cannot hold together, such as JSON of mixed types, becomes text."""
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeEncodeError):
        return pa.array([None if value is None else json.dumps(value, default=str) for value in values])


def read_hub(source: HubSource, otherwise: str) -> RawTable:
    """Load one split; `otherwise` tells the user what else to do when the Hub does not answer."""
    name = f"{source.dataset} ({', '.join(filter(None, [source.config, source.split]))})"
    revision = {} if source.revision is None else {"revision": source.revision}
    try:
        loaded = datasets.load_dataset(source.dataset, source.config, split=source.split, **revision)
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        reason = str(error).strip().split("\n")[0]
        raise AbsentError(f"{name} cannot be loaded from the Hugging Face Hub: {reason}; {otherwise}") from None
    if any("." in column for column in source.columns):
        loaded = loaded.flatten()  # `translation.en` is a column then
    return RawTable(name, loaded.to_dict(), range(1, len(loaded) + 1), unit="row")
