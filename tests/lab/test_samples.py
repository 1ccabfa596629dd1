"""Examples to click on: short ones of every label, and none that would have to be fetched."""

from __future__ import annotations

from pathlib import Path

import pytest

from rosewood.data import loading
from rosewood.data.tasks import load_task
from rosewood.lab.playground.served_runs import SHORT, samples
from tiny_playground import LABELS, tiny_task, write_data


def test_short_examples_of_every_label(tmp_path: Path) -> None:
    data = write_data(tmp_path)
    with (data / "test.csv").open("a") as file:
        file.write("long " * 100 + ",negative\n")
    found = samples(tiny_task(), data)
    assert [label for _, label in found] == [LABELS[0], LABELS[0], LABELS[1], LABELS[1]]
    assert all(len(text) <= SHORT for text, _ in found)


def test_nothing_is_fetched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ROSEWOOD_DATA", raising=False)
    monkeypatch.setattr(loading, "read_hub", lambda *_: pytest.fail("asked the Hub"))
    assert samples(load_task("sst2"), None) == []
    assert samples(tiny_task(), None) == []
    assert samples(tiny_task(), tmp_path) == []
