"""Every shipped task is complete, and a task file that makes no sense says why."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from rosewood.data.tasks import Task, build_task, label_key, load_task, task_names
from rosewood.errors import DataError

SHIPPED = ["agnews", "imdb", "mnli", "qnli", "qqp", "reviews", "rte", "snli", "sst2"]
PROBES = ["msgs-length", "msgs-the", "probe-length", "probe-the"]
LABELS = {
    "agnews": ["world", "sports", "business", "sci_tech"],
    "imdb": ["negative", "positive"],
    "mnli": ["entailment", "neutral", "contradiction"],
    "qnli": ["entailment", "not_entailment"],
    "qqp": ["not_duplicate", "duplicate"],
    "reviews": ["negative", "positive"],
    "rte": ["entailment", "not_entailment"],
    "snli": ["entailment", "neutral", "contradiction"],
    "sst2": ["negative", "positive"],
}
ADVERSARIAL = {name: ["advglue"] for name in ("sst2", "rte", "qnli", "qqp")} | {"mnli": ["advglue", "advglue_mm"]}


def raw_task(**changes: Any) -> dict[str, Any]:
    splits = {"train": {"folder": {"file": "a.csv"}}, "validation": {"carve": {"from": "train", "share": 0.1}}}
    return {"name": "a", "title": "A", "text": ["text"], "labels": ["no", "yes"], "splits": splits, **changes}


def problem(**changes: Any) -> str:
    with pytest.raises(DataError) as caught:
        build_task(raw_task(**changes), "a.yaml")
    return str(caught.value)


def test_shipped_names() -> None:
    assert task_names() == sorted([*SHIPPED, *PROBES])


@pytest.mark.parametrize("name", PROBES)
def test_shipped_probe_is_complete(name: str) -> None:
    task = load_task(name)
    assert (task.name, task.labels) == (name, ["raising", "control"])
    assert list(task.splits) == ["train", "validation", "ambiguous", "disambiguating", "disambiguating-in-domain"]
    for split in task.splits.values():
        assert split.carve or (split.embedded if name.startswith("probe") else split.folder)


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_task_is_complete(name: str) -> None:
    task = load_task(name)
    assert task.name == name
    assert task.labels == LABELS[name]
    assert {"train", "validation", "test"} <= set(task.splits)
    assert [name for name, split in task.splits.items() if split.role == "adversarial"] == ADVERSARIAL.get(name, [])
    for split in task.splits.values():
        if name == "reviews":
            assert split.embedded
        elif not split.carve:
            assert (split.folder or split.embedded) and split.hub


def test_glue_is_tested_on_the_labelled_dev_set() -> None:
    for name in ("sst2", "rte", "qnli", "qqp", "mnli"):
        hub = load_task(name).splits["test"].hub
        assert hub and hub.dataset == "nyu-mll/glue"
        assert hub.split == ("validation_matched" if name == "mnli" else "validation")


def test_qnli_trains_on_train_rows_and_is_tested_on_the_dev_set() -> None:
    files = [split.folder.file for split in load_task("qnli").splits.values() if split.folder]
    assert files == ["glue/QNLI/train_10k.tsv", "glue/QNLI/dev.tsv", "advglue/dev_ann.json"]


@pytest.mark.parametrize("name", SHIPPED)
def test_task_survives_yaml(name: str, tmp_path: Path) -> None:
    task = load_task(name)
    path = tmp_path / "copy.yaml"
    path.write_text(yaml.safe_dump(task.model_dump(by_alias=True, exclude_none=True)), encoding="utf-8")
    assert load_task(path) == task


def test_unknown_task() -> None:
    with pytest.raises(DataError) as caught:
        load_task("sst")
    assert str(caught.value).startswith("unknown task 'sst': did you mean sst2")


def test_unknown_split() -> None:
    with pytest.raises(DataError) as caught:
        load_task("sst2").split("tests")
    assert str(caught.value).startswith("task sst2 has no split 'tests': did you mean test")


def test_missing_and_broken_yaml(write: Callable[[str, Any], Path], tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        load_task(tmp_path / "none.yaml")
    with pytest.raises(DataError, match="cannot be read as YAML"):
        load_task(write("a.yaml", "name: [a"))


def test_all_problems_of_a_task_at_once() -> None:
    text = problem(labels=["only"], colour="red")
    assert text.startswith("a.yaml is not a valid task:")
    assert "labels: List should have at least 2 items" in text
    assert "colour: Extra inputs are not permitted" in text


NONSENSE = {
    "three texts": ({"text": ["a", "b", "c"]}, "at most 2 items"),
    "text called label": ({"text": ["label"]}, "none may be called 'label'"),
    "equal labels": ({"labels": ["yes", "yes"]}, "labels must differ"),
    "no source": ({"splits": {"train": {}}}, "split train: needs either a source"),
    "name and role": (
        {"splits": {"train": {"folder": {"file": "a.csv"}, "role": "shift"}}},
        "split train: has role shift; train, validation and test are called by their role",
    ),
    "no role": ({"splits": {"books": {"folder": {"file": "a.csv"}}}}, "splits.books.role: Field required"),
    "unknown label value": (
        {"splits": {"train": {"folder": {"file": "a.csv", "label_values": {0: "maybe"}}}}},
        "split train: label_values names 'maybe', which is not a label",
    ),
    "carved from nothing": (
        {"splits": {"validation": {"carve": {"from": "train", "share": 0.1}}}},
        "split validation: is carved from 'train', which is not a split with a source",
    ),
    "group": (
        {
            "splits": {
                "train": {"folder": {"file": "a.csv"}},
                "validation": {"carve": {"from": "train", "share": 0.1, "group": "premise"}},
            }
        },
        "group 'premise' is not a text field",
    ),
    "two carves": (
        {
            "splits": {
                "train": {"folder": {"file": "a.csv"}},
                "validation": {"carve": {"from": "train", "share": 0.1}},
                "test": {"carve": {"from": "train", "share": 0.1}},
            }
        },
        "only one split may be carved from the same split",
    ),
}


@pytest.mark.parametrize(("changes", "expected"), NONSENSE.values(), ids=NONSENSE)
def test_nonsense_says_why(changes: dict[str, Any], expected: str) -> None:
    assert expected in problem(**changes)


def test_label_keys_join_integers_and_strings() -> None:
    assert [label_key(value) for value in (0, "0", 0.0, " 0 ", -1, "yes")] == ["0", "0", "0", "0", "-1", "yes"]
    assert [label_key(value) for value in (None, float("nan"), "")] == ["", "", ""]
    splits = {"train": {"folder": {"file": "a", "label_values": {0: "no", "1": "yes"}, "drop_labels": [-1]}}}
    folder = Task.model_validate(raw_task(splits=splits)).splits["train"].folder
    assert folder and folder.label_values == {"0": "no", "1": "yes"} and folder.drop_labels == ["-1"]
