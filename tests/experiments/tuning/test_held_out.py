"""A search sees training data alone, whatever a task calls its splits."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rosewood.data.loading import load_split
from rosewood.data.tasks import load_task, task_names
from rosewood.errors import DataError, ExperimentError
from rosewood.experiments.tuning.search import held_out
from rosewood.training import callbacks
from tiny_tuning import Place, write_task


@pytest.mark.parametrize("name", task_names())
def test_of_every_task_only_training_data_are_left(name: str) -> None:
    task = load_task(name)
    found = held_out(task)
    assert list(found.splits) == ["train", "validation"]
    rule = found.splits["validation"].carve
    assert rule is not None and rule.source == "train" and not found.splits["validation"].sources
    assert found.splits["train"] == task.splits["train"]
    for other in set(task.splits) - {"train", "validation"}:
        with pytest.raises(DataError, match=f"has no split {other!r}"):
            load_split(found, other)


def test_own_validation_data_are_left_for_the_final_run(tmp_path: Path) -> None:
    found = held_out(load_task(write_task(tmp_path)))
    train, held = (set(load_split(found, name)["text"]) for name in ("train", "validation"))
    assert len(held) == 6 and len(train) == 54 and not held & train
    assert {text.split()[0] for text in held | train} == {"train"}


def test_a_carved_validation_split_stays_as_it_is(tmp_path: Path) -> None:
    carve = {"carve": {"from": "train", "share": 0.3, "seed": 5}}
    task = load_task(write_task(tmp_path, validation=carve))
    found = held_out(task)
    for name in ("train", "validation"):
        assert load_split(found, name)["text"][:] == load_split(task, name)["text"][:]


def test_test_data_within_the_training_file_are_not_touched(tmp_path: Path) -> None:
    task = load_task(write_task(tmp_path, test={"carve": {"from": "train", "share": 0.3}}))
    with pytest.raises(ExperimentError, match="carves its split test from the training data"):
        held_out(task)


def test_a_search_works_without_test_data_and_attacks_training_data_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, seen = Place(tmp_path), list[str]()
    for kind in ("test", "validation"):
        (tmp_path / f"{kind}.csv").unlink()

    def attacked(model: Any, tokenizer: Any, data: Any, *_: Any, **__: Any) -> Any:
        seen.extend(data["text"])
        return SimpleNamespace(robust_accuracy=0.5, clean_accuracy=0.5, attacked=True)

    monkeypatch.setattr(callbacks, "robust_accuracy", attacked)
    found = place.tune("out", objective="robust", attack="typos", trials=1)
    assert found.best is not None and found.best.robust == 0.5
    assert seen and {text.split()[0] for text in seen} == {"train"}
    (run,) = (tmp_path / "out" / "trials").glob("*/run.json")
    assert set(json.loads(run.read_text())["fingerprints"]) == {"train", "validation"}
