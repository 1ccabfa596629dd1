"""Watching a run, and what the commands make of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from shutil import copytree

import pytest

from rosewood.results import RunInfo
from tiny_text import save_tiny_checkpoint

Rosewood = Callable[..., str]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> tuple[object, ...]:
    folder = tmp_path_factory.mktemp("data")
    rows = [f"{'good' if i % 2 else 'bad'} film {chr(97 + i % 26)}{chr(97 + i // 26)},{i % 2}" for i in range(60)]
    (folder / "films.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    checkpoint = save_tiny_checkpoint(folder / "tiny")
    return ("--train-file", folder / "films.csv", "--model", checkpoint, "--max-length", "16", "--batch-size", "8")


def test_watch_and_look(
    rosewood: Rosewood, data: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vanilla, rose = tmp_path / "vanilla", tmp_path / "rose"
    seen = ("--watch", "drift", "--watch", "inconsistency", "--watch-every", "2", "--epochs", "1")
    rosewood("train", *data, *seen, "--output", vanilla)
    rosewood("train", *data, *seen, "--watch", "masks", "--recipe", "rose-ensemble", "--output", rose)
    info = RunInfo.load(rose / "run.json")
    assert (info.watch, info.watch_every) == (["drift", "inconsistency", "masks"], 2)
    assert {file.name for file in (rose / "dynamics").iterdir()} == {
        *("drift.jsonl", "inconsistency.jsonl", "masks.jsonl")
    }

    printed = rosewood("dynamics", rose)
    assert "Relative distance to the pre-trained weights; rose after 7 steps." in printed
    assert "Share that may move" in printed
    names = {file.name for file in (rose / "figures").iterdir()}
    assert names == {"drift.html", "masks.html", "second-order.html", "inconsistency.html"}

    printed = rosewood("dynamics", vanilla, rose, "--at", "4", "--output", tmp_path / "both", "--format", "json")
    table = next(line for line in printed.splitlines() if "run" in line and " 4 " in line and " 7 " in line)
    assert table
    assert {file.name for file in (tmp_path / "both").iterdir()} == {
        *("drift.json", "masks.json", "second-order.json", "inconsistency.json")
    }

    (tmp_path / "again").mkdir()
    copytree(rose, tmp_path / "again" / "rose")
    printed = rosewood("dynamics", rose, tmp_path / "again" / "rose", "--output", tmp_path / "same")
    assert "-rose after 7 steps" in printed and "again-rose after 7 steps" in printed
    monkeypatch.chdir(rose)
    assert "; rose after 7 steps." in rosewood("dynamics", ".", "--output", tmp_path / "here")

    printed = rosewood("geometry", rose, "--examples", "6", "--output", tmp_path / "map.json")
    assert "6 texts of validation. Mean cosine of a text's features before and after" in printed
    assert (rose / "geometry.json").exists() and (tmp_path / "map.json").exists()


def test_what_makes_no_sense_is_refused(rosewood: Rosewood, data: tuple[object, ...], tmp_path: Path) -> None:
    run = tmp_path / "run"
    printed = rosewood("train", *data, "--watch", "masks", "--output", run, code=1)
    assert "recipe vanilla masks nothing" in printed
    assert not run.exists()
    printed = rosewood("train", *data, "--watch-every", "2", "--output", run, code=1)
    assert "--watch-every says how often, not what" in printed
    run.mkdir()
    assert "has no record of its training: train with --watch" in rosewood("dynamics", run, code=1)
    assert "there is no run or checkpoint" in rosewood("dynamics", tmp_path / "elsewhere", code=1)
    assert "Expected a figure's file to end in one of" in rosewood("geometry", run, "--output", "map.txt", code=1)
    printed = rosewood("tradeoff", run, "--over", "a.b", "--under", "pwws", "--output", "x.bmp", code=1)
    assert "Expected a figure's file to end in one of" in printed
