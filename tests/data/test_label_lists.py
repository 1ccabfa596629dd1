"""Labels that are lists make a multi-label task, from every kind of file and from memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from transformers import BertConfig

from rosewood.data.examples import as_list, listed_labels
from rosewood.data.loading import load_split, task_from_files
from rosewood.data.own import own_task
from rosewood.errors import DataError

TEXTS = ["funny", "sad and funny", "scary", "nothing"]
NAMED = [["comedy"], ["drama", "comedy"], ["horror"], []]
VECTORS = [[1, 0, 0], [1, 1, 0], [0, 0, 1], [0, 0, 0]]
EXPECTED = [[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ([0, 1], [0, 1]),
        ((0, 1), [0, 1]),
        (np.array([0, 1]), [0, 1]),
        ("[0, 1, 1]", [0, 1, 1]),
        ("['a', 'b']", ["a", "b"]),
        (' ["a"] ', ["a"]),
        ("[]", []),
        ("[sic]", None),
        ("a", None),
        ("[" * 5000 + "]" * 5000, None),
        (np.int64(3), None),
        (0.5, None),
        (None, None),
    ],
    ids=lambda value: str(value)[:20],
)
def test_what_is_a_list(value: Any, found: list[Any] | None) -> None:
    assert as_list(value) == found


def test_equally_long_zeros_and_ones_are_vectors_and_others_are_names() -> None:
    assert listed_labels(VECTORS) == ["0", "1", "2"]
    assert listed_labels([[0, 1], [1]]) == ["0", "1"]
    assert listed_labels([[0], [1]]) == ["0", "1"]
    assert listed_labels([[2, 7], [7, 5]]) == ["2", "7", "5"]


@pytest.mark.parametrize("labels", [NAMED, VECTORS], ids=["names", "vectors"])
@pytest.mark.parametrize("ending", [".jsonl", ".parquet", ".csv"])
def test_files(labels: list[list[Any]], ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"films{ending}"
    frame = pd.DataFrame({"text": TEXTS * 3, "label": labels * 3})
    frame["text"] += [f" {i}" for i in range(12)]
    {
        ".jsonl": lambda: frame.to_json(path, orient="records", lines=True),
        ".parquet": lambda: frame.to_parquet(path),
        ".csv": lambda: frame.to_csv(path, index=False),  # writes lists as Python does
    }[ending]()
    task = task_from_files(path, path, text_columns=["text"])
    assert task.multi_label and task.labels == (["comedy", "drama", "horror"] if labels is NAMED else ["0", "1", "2"])
    assert load_split(task, "validation", multi_label=True)["label"][:] == EXPECTED * 3
    with pytest.raises(
        DataError, match=r"has several labels per text. It can be trained, evaluated and attacked; analyses need"
    ):
        load_split(task, "validation")


@pytest.mark.parametrize("labels", [NAMED, VECTORS], ids=["names", "vectors"])
def test_rows_in_memory(labels: list[list[Any]]) -> None:
    names = {0: "Comedy", 1: "Drama", 2: "Horror"}
    rows = [{"text": text, "labels": each} for text, each in zip(TEXTS, labels, strict=True)]
    task = own_task(rows, BertConfig(id2label=names, label2id={name: i for i, name in names.items()}))
    assert task.multi_label
    assert load_split(task, "test", multi_label=True)["label"][:] == EXPECTED


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([["a"], "b", ["b"]], "line 2: expected a list of labels.*got 'b'"),
        ([["a"], None, ["b"]], "line 2: expected a list of labels.*got None"),
        ([["a", "b"], ["a", 0.5], ["b"]], "got 0.5. Labels such as this are numbers to predict"),
        ([["a"], ["a"], ["a"]], "expected two labels or more"),
    ],
)
def test_mistakes(labels: list[Any], message: str, tmp_path: Path) -> None:
    path = tmp_path / "films.jsonl"
    path.write_text("\n".join(json.dumps({"text": f"t{i}", "label": each}) for i, each in enumerate(labels)))
    with pytest.raises(DataError, match=message):
        task_from_files(path, path, text_columns=["text"])


def test_a_list_in_a_task_with_one_label_is_refused(tmp_path: Path) -> None:
    train, test = tmp_path / "train.jsonl", tmp_path / "test.jsonl"
    train.write_text("\n".join(json.dumps({"text": f"t{i}", "label": i % 2}) for i in range(30)))
    test.write_text(json.dumps({"text": "t", "label": [0, 1]}))
    with pytest.raises(DataError, match=r"expected one label, got the list \[0, 1\]; a task with several"):
        task_from_files(train, train, text_columns=["text"], test_file=test)


def test_the_held_out_tenth_has_every_combination_in_its_share(tmp_path: Path) -> None:
    path = tmp_path / "films.jsonl"
    rows = [{"text": f"text {i}", "label": [["a"], ["a", "b"]][i % 5 == 0]} for i in range(200)]
    path.write_text("\n".join(map(json.dumps, rows)))
    task = task_from_files(path, text_columns=["text"])
    held_out = load_split(task, "validation", multi_label=True)["label"][:]
    assert len(held_out) == 20 and sum(row == [1.0, 1.0] for row in held_out) == 4
