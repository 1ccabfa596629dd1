"""rosewood tune on the command line: what it prints can be run, and no password is printed."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from cli.conftest import Rosewood
from tiny_text import save_tiny_checkpoint
from tiny_tuning import write_rows


def test_the_command_that_it_prints_trains_the_best_recipe(rosewood: Rosewood, tmp_path: Path) -> None:
    """On a file of one's own, with settings from a YAML file and from the command line."""
    space = tmp_path / "space.yaml"
    space.write_text("training.weight_decay: [0.0, 0.1]\nlearning_rate: 1..2\n")
    data = [
        "--train-file",
        write_rows(tmp_path / "mine.csv", "mine", 40),
        "--model",
        save_tiny_checkpoint(tmp_path / "m"),
    ]
    output = ["--output", tmp_path / "out", "--trials", 2, "--epochs", 1, "--max-length", 24]
    search = ["--search-file", space, "--search", "learning_rate=1e-4..1e-2:log"]
    printed = rosewood("tune", *data, *output, *search)
    assert "trial 1 of 2: complete" in printed and "Best: trial" in printed
    command = next(line.strip() for line in printed.splitlines() if line.strip().startswith("rosewood train"))
    rosewood(*shlex.split(command)[1:])
    info = json.loads((tmp_path / "out" / "best" / "run.json").read_text())
    assert info["status"] == "finished" and info["recipe"] == "vanilla-tuned" and info["task"] == "mine"
    assert 1e-4 <= info["training_arguments"]["learning_rate"] <= 1e-2


def test_a_password_is_printed_nowhere(rosewood: Rosewood, tmp_path: Path) -> None:
    data = [
        "--train-file",
        write_rows(tmp_path / "mine.csv", "mine", 40),
        "--model",
        save_tiny_checkpoint(tmp_path / "m"),
    ]
    words = [*data, "--search", "learning_rate=1e-4..1e-2", "--output", tmp_path / "out"]
    for url in ("postgresql://me:secret@127.0.0.1:9/x", "postgresql+psycopg://me:secret@127.0.0.1:9/x", "x:secret"):
        printed = rosewood("tune", *words, "--storage", url, code=1)
        assert "secret" not in printed and "Error: the storage" in printed
    assert not (tmp_path / "out").exists()


def test_no_other_split_can_be_named(rosewood: Rosewood, tmp_path: Path) -> None:
    for option in ("--eval-file", "--test-file", "--split"):
        assert "No such option" in rosewood("tune", "--search", "learning_rate=1..2", option, "test", code=2)
