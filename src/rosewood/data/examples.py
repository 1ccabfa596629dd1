"""Turn a table into the examples of a task and their token ids, and refuse what cannot be learnt."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import datasets
from transformers import PreTrainedTokenizerBase

from rosewood.data.files import RawTable
from rosewood.data.tasks import Source, Task, label_key
from rosewood.errors import DataError, closest


def examples(table: RawTable, task: Task, source: Source) -> RawTable:
    """The table with the task's texts, label ids and, after them, all other columns."""
    if source.every_label is not None:
        table = replace(table, columns={**table.columns, "label": [source.every_label] * len(table)})
    table = _drop_labels(_renamed(table, task, source), source)
    if source.drop_empty:
        table = table.take([i for i in range(len(table)) if all(_is_text(table.columns[f][i]) for f in task.text)])
    if len(table) == 0:
        raise DataError(f"{table.name}: no row is left after dropping labels {source.drop_labels} and empty texts")
    for field in task.text:
        _check_texts(table, field)
    texts = {field: _replaced(table.columns[field], task.replace) for field in task.text}
    labels = _label_ids(table, task, source)
    others = {name: values for name, values in table.columns.items() if name not in (*task.text, "label")}
    return replace(table, columns={**texts, "label": labels, **others})


def _renamed(table: RawTable, task: Task, source: Source) -> RawTable:
    found = list(table.columns)
    raw_name = {new: raw for raw, new in source.columns.items()}
    for field in (*task.text, "label"):
        raw = raw_name.get(field, field)
        if raw not in found:
            raise DataError(f"{table.name}: expected a column {raw!r}; {closest(raw, found)}")
        if raw != field and field in found and field not in source.columns:
            raise DataError(
                f"{table.name}: column {raw!r} is to be read as {field!r}, but a column of that name "
                "exists too; rename or remove it"
            )
    columns = {source.columns.get(name, name): values for name, values in table.columns.items()}
    return replace(table, columns=columns)


def _drop_labels(table: RawTable, source: Source) -> RawTable:
    if not source.drop_labels:
        return table
    labels = table.columns["label"]
    return table.take([i for i, label in enumerate(labels) if label_key(label) not in source.drop_labels])


def _is_text(value: Any) -> bool:
    if not isinstance(value, str) or not value.strip():
        return False
    # A lone surrogate, as broken JSON escapes give, cannot be written or tokenised.
    return not any("\ud800" <= character <= "\udfff" for character in value) if not value.isascii() else True


def _check_texts(table: RawTable, field: str) -> None:
    values = table.columns[field]
    bad = [i for i, value in enumerate(values) if not _is_text(value)]
    if bad:
        raise table.problem(bad, f"column {field!r} must hold a text that is not empty, got {values[bad[0]]!r}")


def _replaced(texts: list[str], replacements: dict[str, str]) -> list[str]:
    for old, new in replacements.items():
        texts = [text.replace(old, new) for text in texts]
    return texts


def _label_ids(table: RawTable, task: Task, source: Source) -> list[int] | list[Vector]:
    names = source.label_values or {name: name for name in task.labels}
    ids = {raw: task.labels.index(name) for raw, name in names.items()}
    values = table.columns["label"]
    if task.multi_label:
        return _label_vectors(table, ids, len(task.labels))
    lists = [i for i, value in enumerate(values) if not isinstance(value, str) and as_list(value) is not None]
    if lists:
        message = f"expected one label, got the list {values[lists[0]]!r}; a task with several has multi_label: true"
        raise table.problem(lists, message)
    keys = [label_key(value) for value in values]
    bad = [i for i, key in enumerate(keys) if key not in ids]
    if bad:
        raise table.problem(bad, _label_problem(keys[bad[0]], list(ids)))
    return [ids[key] for key in keys]


def _label_vectors(table: RawTable, ids: dict[str, int], size: int) -> list[Vector]:
    """A 0 or 1 for each label, from lists that have the same, or from lists of labels."""
    lists = [as_list(value) for value in table.columns["label"]]
    single = [i for i, found in enumerate(lists) if found is None]
    if single:
        got = table.columns["label"][single[0]]
        raise table.problem(single, f"expected a list of labels, such as ['{next(iter(ids))}'] or [], got {got!r}")
    rows = [found for found in lists if found is not None]
    if are_vectors(rows, size):
        return [tuple(int(part) for part in row) for row in rows]
    keys = [[label_key(part) for part in row] for row in rows]
    bad = [i for i, row in enumerate(keys) if any(key not in ids for key in row)]
    if bad:
        unknown = next(key for key in keys[bad[0]] if key not in ids)
        raise table.problem(bad, _label_problem(unknown, list(ids)))
    chosen = [{ids[key] for key in row} for row in keys]
    return [tuple(int(label in row) for label in range(size)) for row in chosen]


def _label_problem(key: str, known: list[str]) -> str:
    if key == "":
        return f"the row has no label, expected one of {', '.join(known)}"
    if key == "-1":
        return f"label -1 marks a row without label, expected one of {', '.join(known)}"
    return f"unknown label {key!r}: {closest(key, known)}"


Vector = tuple[int, ...]
"""A 1 for each label that a text has, and a 0 for each that it has not."""


def as_list(value: Any) -> list[Any] | None:
    """The labels that a value lists, or None if it is a single label.

    In CSV a list is written as in JSON or Python, in brackets: [0, 1, 1], ["comedy", "drama"] or [].
    """
    if isinstance(value, str):
        text = value.strip()
        if not (text.startswith("[") and text.endswith("]")):
            return None
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            return None
    if hasattr(value, "tolist"):  # of NumPy
        value = value.tolist()
    return list(value) if isinstance(value, list | tuple | set | frozenset) else None


def has_lists(values: Iterable[Any]) -> bool:
    """Whether a column of labels has lists."""
    return any(as_list(value) is not None for value in values)


def listed_labels(values: Iterable[Any]) -> list[str]:
    """The labels that the lists of a column name, in the order in which they come; numbers from 0 for 0-1 vectors."""
    lists = [found for value in values if (found := as_list(value)) is not None]
    lengths = {len(each) for each in lists}
    if len(lengths) == 1 and are_vectors(lists, size := lengths.pop()) and size > 1:
        return [str(number) for number in range(size)]
    return list(dict.fromkeys(label_key(each) for found in lists for each in found))


def are_vectors(lists: Sequence[Sequence[Any]], size: int) -> bool:
    """Whether all lists have a 0 or 1 for each of so many labels."""
    return all(
        len(each) == size and all(isinstance(part, int | float) and part in (0, 1) for part in each) for each in lists
    )


_CUT_SHARE = 0.05
_CHECKED = 1000
_QUICK = 20_000


def tokenize(
    dataset: datasets.Dataset, task: Task, tokenizer: PreTrainedTokenizerBase, max_length: int = 128
) -> datasets.Dataset:
    """Encode single texts or pairs, cut to `max_length` tokens (the longer text of a pair first).

    The result has what the tokenizer gives the model, plus `labels` and `length`.
    """
    if max_length > tokenizer.model_max_length:
        raise DataError(f"max_length {max_length} is more than the model's {tokenizer.model_max_length} tokens")

    def encode(batch: dict[str, list]) -> dict[str, list]:
        texts = [batch[field] for field in task.text]
        encoded = dict(tokenizer(*texts, truncation=True, max_length=max_length))
        return {**encoded, "labels": batch["label"], "length": [len(ids) for ids in encoded["input_ids"]]}

    with quiet(len(dataset)):
        encoded = dataset.map(encode, batched=True, remove_columns=dataset.column_names, desc="tokenize")
    share = _cut_share(dataset, task, tokenizer, encoded, max_length)
    if share > _CUT_SHARE:
        warnings.warn(
            f"{share:.0%} of {len(dataset):,} texts are longer than max_length={max_length} tokens and were cut",
            stacklevel=2,
        )
    return encoded


@contextmanager
def quiet(rows: int) -> Iterator[None]:
    """No progress bar for what is done before anybody could read it."""
    if rows > _QUICK or datasets.are_progress_bars_disabled():
        yield
        return
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        datasets.enable_progress_bars()


def _cut_share(
    dataset: datasets.Dataset,
    task: Task,
    tokenizer: PreTrainedTokenizerBase,
    encoded: datasets.Dataset,
    max_length: int,
) -> float:
    """The share of texts that were cut, from a look at some of the rows that fill `max_length`."""
    full = [i for i, length in enumerate(encoded["length"][:]) if length == max_length]
    if not full:
        return 0.0
    rows = dataset.select(full[:: max(1, len(full) // _CHECKED)])
    whole = tokenizer(*(rows[field][:] for field in task.text), verbose=False)["input_ids"]
    cut = sum(len(ids) > max_length for ids in whole) / len(whole)
    return cut * len(full) / len(dataset)
