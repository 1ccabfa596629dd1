"""rosewood probe on the command line: seeds, table, exit code."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from cli.conftest import Rosewood
from rosewood.cli.compare import seeds_of
from rosewood.experiments.engines import local
from tiny_experiment import InThisProcess
from tiny_probe import write_msgs
from tiny_text import save_tiny_encoder


@pytest.mark.parametrize(
    ("text", "expected"), [("0..4", [0, 1, 2, 3, 4]), ("7", [7]), ("0,3, 7", [0, 3, 7]), ("0..1,9", [0, 1, 9])]
)
def test_seeds(text: str, expected: list[int]) -> None:
    assert seeds_of(text) == expected


@pytest.mark.parametrize("text", ["", "x", "-1", "4..0", "0..", "0...2", "0..999999999", "1,,2"])
def test_what_is_no_seed_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="expected"):
        seeds_of(text)


def test_a_probe_prints_its_table(rosewood: Rosewood, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, model, output = write_msgs(tmp_path / "msgs"), save_tiny_encoder(tmp_path / "model"), tmp_path / "out"
    monkeypatch.setattr(local.LocalEngine, "run", lambda self, folders: InThisProcess().run(folders))
    command = ["probe", "vanilla", "--task", "msgs-the", "--seeds", "0..1", "--model", model, "--data-dir", data]
    printed = rosewood(*command, "-o", output, "--train-size", 8, "--batch-size", 4, "--epochs", 1)
    assert "2 of 2 runs are finished" in printed and "msgs-the │ vanilla │     2 │" in printed
    failing = [*command, "-o", tmp_path / "other", "--train-size", 8]
    monkeypatch.setattr(local.LocalEngine, "run", lambda self, folders: iter(()))
    printed = rosewood(*failing, code=1)
    assert "0 of 2 runs are finished" in printed and "table.md" in printed
    assert not (tmp_path / "other" / "probing.html").exists()


def test_help_has_examples_and_bad_seeds_are_a_usage_error(rosewood: Rosewood, tmp_path: Path) -> None:
    assert "rosewood probe vanilla rose-ensemble --output runs/probe" in rosewood("probe", "--help")
    assert "expected seeds such as 0..4" in rosewood("probe", "vanilla", "--seeds", "a", "-o", tmp_path / "x", code=2)
    assert not (tmp_path / "x").exists()
