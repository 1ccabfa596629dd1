"""Data of the user's own become the test split of a task with the labels of the model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from datasets import ClassLabel, Dataset, Features, Value
from transformers import BertConfig

from rosewood.data.loading import load_split, origin
from rosewood.data.own import is_data_file, own_task
from rosewood.data.tasks import load_task
from rosewood.errors import DataError

ROWS = [
    {"text": "fine", "label": "positive"},
    {"text": "dull", "label": "negative"},
    {"text": "so", "label": "neutral"},
]
NUMBERS = [{**row, "label": number} for row, number in zip(ROWS, (2, 0, 1), strict=True)]
NAMES = ["negative", "neutral", "positive"]


def config(names: list[str] = NAMES) -> BertConfig:
    return BertConfig(id2label=dict(enumerate(names)), label2id={name: i for i, name in enumerate(names)})


def renamed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"text": row["text"], "labels": row["label"]} for row in rows]


@pytest.mark.parametrize("rows", [ROWS, NUMBERS], ids=["names", "numbers"])
@pytest.mark.parametrize("column", ["label", "labels"])
@pytest.mark.parametrize("form", [list, Dataset.from_list, pd.DataFrame], ids=["list", "dataset", "frame"])
def test_every_form_gives_the_same_rows(rows: list[dict[str, Any]], column: str, form: Callable[..., Any]) -> None:
    task = own_task(form(rows if column == "label" else renamed(rows)), config())
    found = load_split(task, "test")
    assert found.to_dict() == {"text": ["fine", "dull", "so"], "label": [2, 0, 1]}
    assert found.features["label"].names == NAMES
    assert origin(task, "test") == "rows in memory"


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_every_file_gives_the_same_rows(ending: str, tmp_path: Path) -> None:
    path, frame = tmp_path / f"mine{ending}", pd.DataFrame(ROWS).rename(columns={"text": "review", "label": "Topic"})
    write = {
        ".csv": lambda: frame.to_csv(path, index=False),
        ".tsv": lambda: frame.to_csv(path, index=False, sep="\t"),
        ".jsonl": lambda: frame.to_json(path, orient="records", lines=True),
        ".parquet": lambda: frame.to_parquet(path),
    }
    write[ending]()
    assert is_data_file(path)
    task = own_task(path, config(), ["review"], "Topic")
    assert load_split(task, "test").to_dict() == {"review": ["fine", "dull", "so"], "label": [2, 0, 1]}
    assert task.name == "mine" and task.noise is not None and len(task.noise.kinds) == 6


def test_names_match_in_any_case_and_a_set_may_lack_some() -> None:
    task = own_task([{"text": "fine", "label": "POSITIVE"}, {"text": "dull", "label": "Negative"}], config())
    assert load_split(task, "test")["label"][:] == [2, 0]


def test_numbers_that_are_names_are_names() -> None:
    task = own_task([{"text": "a", "label": 1}, {"text": "b", "label": 2}], config(["1", "2"]))
    assert load_split(task, "test")["label"][:] == [0, 1]


def test_class_labels_of_a_dataset_bring_their_names() -> None:
    features = Features({"text": Value("string"), "label": ClassLabel(names=["positive", "negative", "neutral"])})
    data = Dataset.from_dict({"text": ["fine", "dull"], "label": [0, 1]}, features=features)
    task = own_task(data, config())
    assert task.labels == ["positive", "negative", "neutral"]
    assert load_split(task, "test")["label"][:] == [0, 1]


def test_numpy_labels_and_other_columns_are_kept() -> None:
    frame = pd.DataFrame({"id": ["x", "y"], "text": ["fine", "dull"], "label": np.array([2, 0]), "weight": [0.5, 1.5]})
    found = load_split(own_task(frame, config()), "test")
    assert found["label"][:] == [2, 0] and found["weight"][:] == [0.5, 1.5]


def test_the_only_columns_of_text_are_the_texts() -> None:
    single = own_task([{"id": 7, "sentence": "fine", "label": 0}], config())
    pair = own_task([{"label": 0, "premise": "fine", "hypothesis": "dull"}], config())
    assert (single.text, pair.text) == (["sentence"], ["premise", "hypothesis"])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "the data have no rows"),
        (["fine"], "row 0 of the data is str, expected a dict"),
        ({"text": ["fine"], "label": [0]}, "data of type dict cannot be read: expected a datasets.Dataset"),
        ([{"text": "fine"}], "expected a column 'label' or 'labels', and the columns are text"),
        ([{"a": "x", "b": "y", "c": "z", "label": 0}], "which columns hold the texts"),
        ([{"text": "fine", "label": "fun"}, *ROWS], "rows in memory, row 0: unknown label 'fun'"),
        ([{"text": "fine", "label": None}], "row 0: the row has no label, expected one of"),
        ([{"text": None, "label": 0}], "row 0: column 'text' must hold a text"),
        ([{"text": "fine", "label": 3}], "unknown label '3'"),
        ([{"text": "fine", "label": 0.37}, {"text": "dull", "label": 1.0}], "numbers to predict.*regression"),
        (pd.DataFrame([["a", "b", 0]], columns=["text", "text", "label"]), "duplicate column names: text"),
    ],
)
def test_what_cannot_be_used_is_refused(data: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_split(own_task(data, config()), "test")


def test_names_cannot_be_compared_with_outputs_that_have_none() -> None:
    with pytest.raises(DataError, match=r"outputs of the model have no names to compare them with.*--labels"):
        own_task(ROWS, config(["LABEL_0", "LABEL_1", "LABEL_2"]))
    assert load_split(own_task(NUMBERS, config(["LABEL_0", "LABEL_1", "LABEL_2"])), "test")["label"][:] == [2, 0, 1]


def test_files_of_a_task_are_relative_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, elsewhere, data = (tmp_path / name for name in ("home", "elsewhere", "data"))
    for folder in (home / "rows", elsewhere, data / "old"):
        folder.mkdir(parents=True)
    monkeypatch.delenv("ROSEWOOD_DATA", raising=False)
    (home / "rows" / "own.jsonl").write_text(json.dumps({"text": "fine", "label": "positive"}))
    (home / "part-1.jsonl").write_text(json.dumps({"text": "one", "label": "positive"}))
    (home / "part-2.jsonl").write_text(json.dumps({"text": "two", "label": "positive"}))
    (data / "old" / "other.jsonl").write_text(json.dumps({"text": "dull", "label": "negative"}))
    (home / "task.yaml").write_text(
        "name: t\ntitle: T\ntext: [text]\nlabels: [negative, positive]\nsplits:\n"
        "  test: {folder: {file: rows/own.jsonl}}\n"
        "  parts: {role: shift, folder: {file: part-*.jsonl}}\n"
        "  other: {role: shift, folder: {file: old/other.jsonl}}\n"
    )
    monkeypatch.chdir(elsewhere)
    task = load_task(Path("../home/task.yaml"))
    assert load_split(task, "test")["text"][:] == ["fine"]
    assert load_split(task, "parts")["text"][:] == ["one", "two"]
    assert load_split(task, "other", data)["text"][:] == ["dull"]
    with pytest.raises(DataError, match=r"put old/other\.jsonl beside the task's YAML file"):
        load_split(task, "other")
    monkeypatch.chdir(tmp_path)
    assert load_split(task, "test", data)["text"][:] == ["fine"]
