"""Three kinds of rows: those that train, those that choose between candidates, and those that judge, once.

Rows that choose are the validation rows, and rows that judge the test rows, of the user or the task. What is missing is
taken from the training rows before anything else, without duplicates and with the same label shares. The files are
written once, so that the same command reads the same rows, and `rosewood train` can read them too.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml
from datasets import Dataset

from rosewood.data.files import ENDINGS
from rosewood.data.loading import load_split, task_from_files
from rosewood.data.splitting import distinct, spread, text_keys
from rosewood.data.tasks import NoiseRule, Split, Task, load_task
from rosewood.errors import DataError
from rosewood.results import write

FOLDER, TASK, CHOOSING = "data", "task.yaml", "choosing"
SHARE, FEWEST, MOST = 0.1, 20, 1000
"""Held-out rows: a share of the training rows, between these numbers."""
NOISE = NoiseRule(kinds=["typos", "keyboard", "dropped_words"], strengths=[0.2], sample=1000)
"""What the start and the winner are measured under on test rows, beside the threats."""


def own_rows(
    train_file: Path,
    eval_file: Path | None,
    test_file: Path | None,
    text_columns: list[str],
    label_column: str,
) -> Task:
    """A task of the user's own files. Of the test file no row is read: it is looked at once, at the end."""
    task = task_from_files(train_file, eval_file, text_columns=text_columns or ["text"], label_column=label_column)
    splits: dict[str, Any] = {name: split for name, split in task.splits.items() if split.carve is None}
    if test_file is not None:
        if not test_file.is_file() or test_file.suffix.lower() not in ENDINGS:
            raise DataError(f"{test_file}: expected a file that ends in {', '.join(ENDINGS)}; check --test-file")
        columns = task.split("train").sources[0].columns
        splits["test"] = Split.model_validate(
            {"role": "test", "folder": {"file": str(test_file.resolve()), "columns": columns}}
        )
    return task.model_copy(update={"splits": splits})


def divide(task: Task, output: Path, data_dir: str | None = None) -> None:
    """Write the rows and their task, unless an earlier start has."""
    folder = output / FOLDER
    if (folder / TASK).exists():
        return
    if "train" not in task.splits:
        raise DataError(f"task {task.name} has no training rows, and hardening trains: name another task")
    if task.multi_label:
        raise DataError(f"task {task.name} has several labels a text, and attacks need one label a text")
    chooses, judges = chooses_and_judges(task)
    whole = task.model_copy(update={"splits": {"train": task.split("train")}})  # whatever else was carved from it
    rows = load_split(whole, "train", data_dir)
    keys = text_keys([rows[field][:] for field in task.text])
    kept = distinct(keys, rows["label"][:])
    order = [kept[place] for place in spread([keys[i] for i in kept], [rows["label"][i] for i in kept], seed=0)]
    part = min(MOST, max(FEWEST, round(SHARE * len(kept))))
    ends = (0 if chooses else part), (0 if chooses else part) + (0 if judges else part)
    if len(order) < 2 * ends[1]:
        raise DataError(
            f"task {task.name} has {len(order)} different training rows, and {ends[1]} of them would be held out: "
            f"hardening needs {2 * ends[1]} or more"
        )
    _write(folder / "train.jsonl", rows.select(sorted(order[ends[1] :])), task)
    chosen = load_split(task, "validation", data_dir, MOST) if chooses else rows.select(sorted(order[: ends[0]]))
    _write(folder / f"{CHOOSING}.jsonl", chosen, task)
    if judges is None:
        _write(folder / "test.jsonl", rows.select(sorted(order[ends[0] : ends[1]])), task)
    splits: dict[str, Any] = {"train": {"folder": {"file": "train.jsonl"}}}
    splits["test"] = {"folder": {"file": "test.jsonl"}} if judges is None else _plain(judges)
    facts = {"name": task.name, "title": task.title, "text": task.text, "labels": task.labels}
    plain = facts | {"replace": task.replace, "notes": task.notes, "noise": NOISE.model_dump(), "splits": splits}
    write(folder / TASK, yaml.safe_dump(plain, sort_keys=False, allow_unicode=True))  # last: where it is, all is


def chooses_and_judges(task: Task) -> tuple[Split | None, Split | None]:
    """The task's own rows that choose, and those that judge, where it has them apart from its training rows.

    Those called test judge, or those called validation if there are no others.
    """
    own = {name: task.splits[name] for name in ("validation", "test") if name in task.splits}
    own = {name: split for name, split in own.items() if split.carve is None}
    return (own.get("validation"), own["test"]) if "test" in own else (None, own.get("validation"))


def _write(file: Path, rows: Dataset, task: Task) -> None:
    records = [{field: row[field] for field in task.text} | {"label": task.labels[row["label"]]} for row in rows]
    write(file, "".join(f"{json.dumps(record, ensure_ascii=False)}\n" for record in records))


def _plain(split: Split) -> dict[str, Any]:
    return split.model_copy(update={"role": "test"}).model_dump(mode="json", exclude_defaults=True)


def whole_task(output: Path) -> Task:
    """The task with training and test rows."""
    return load_task(output / FOLDER / TASK)


def training_task(output: Path) -> Task:
    """The task with training rows only: whoever trains on it cannot read any other."""
    return _only(whole_task(output), train=whole_task(output).split("train"))


def choosing_task(output: Path) -> Task:
    """The held-out rows, as a test split."""
    split = Split.model_validate(
        {"role": "test", "folder": {"file": str((output / FOLDER).resolve() / f"{CHOOSING}.jsonl")}}
    )
    return _only(whole_task(output), test=split)


def judging_task(output: Path) -> Task:
    """The test rows."""
    return _only(whole_task(output), test=whole_task(output).split("test"))


def _only(task: Task, **splits: Split) -> Task:
    return task.model_copy(update={"splits": splits})
