"""Every shipped task loads from a real data folder with the expected number of rows."""

import os

import pytest

from available import available_splits
from rosewood.data.loading import load_split
from rosewood.data.splitting import text_keys
from rosewood.data.tasks import load_task

# train + validation is the file without duplicates: 67,349 - 376 for SST-2, 2,490 - 2 for RTE, 9,842 - 2 for SNLI,
# 25,000 - 97 - 2,000 for IMDB, 11,999 - 5 for AG News.
ROWS = {
    "sst2": {"train": 60276, "validation": 6697, "test": 872, "imdb": 3000, "advglue": 148},
    "rte": {"train": 2239, "validation": 249, "test": 277, "advglue": 81},
    "qnli": {"train": 9425, "validation": 1047, "test": 5463, "advglue": 148},
    "qqp": {"train": 9000, "validation": 1000, "test": 20215, "advglue": 78},
    "mnli": {
        "train": 9000,
        "validation": 1000,
        "test": 9815,
        "snli": 9824,
        "advglue": 121,
        "advglue_mm": 162,
    },
    "snli": {"train": 8854, "validation": 986, "test": 9824, "mnli": 9815},
    "imdb": {"train": 20613, "validation": 2290, "test": 5000, "sst2": 872},
    "agnews": {"train": 10795, "validation": 1199, "test": 7600},
}

pytestmark = [
    pytest.mark.data,
    pytest.mark.skipif(not os.environ.get("ROSEWOOD_DATA"), reason="ROSEWOOD_DATA names no data folder"),
]


@pytest.mark.parametrize("name", ROWS)
def test_rows_of_every_split(name: str) -> None:
    task = load_task(name)
    assert available_splits(task) == list(ROWS[name])
    splits = {split: load_split(task, split) for split in task.splits}
    assert {split: len(loaded) for split, loaded in splits.items()} == ROWS[name]
    for loaded in splits.values():
        assert set(loaded["label"][:]) == set(range(len(task.labels)))
    seen = [set(text_keys([splits[s][field][:] for field in task.text])) for s in ("train", "validation", "test")]
    assert not seen[0] & seen[1] and not seen[0] & seen[2] and not seen[1] & seen[2]


@pytest.mark.parametrize(("name", "group"), [("snli", "premise"), ("mnli", "premise"), ("qnli", "question")])
def test_groups_stay_on_one_side(name: str, group: str) -> None:
    task = load_task(name)
    train, validation = (set(text_keys([load_split(task, s)[group][:]])) for s in ("train", "validation"))
    assert not train & validation


def test_adversarial_rows_keep_how_they_were_made() -> None:
    loaded = load_split(load_task("sst2"), "advglue")
    assert {"data_construction", "method"} <= set(loaded.column_names)
    assert "SememePSO" in loaded["method"][:]
