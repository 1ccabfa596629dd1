"""rosewood average, from training to evaluation."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tiny_text import save_tiny_checkpoint

Rosewood = Callable[..., str]


def test_train_average_evaluate(rosewood: Rosewood, tmp_path: Path) -> None:
    checkpoint = save_tiny_checkpoint(tmp_path / "checkpoint")
    films = tmp_path / "films.csv"
    rows = [f"{'good' if i % 2 else 'bad'} film {chr(97 + i % 26)}{chr(97 + i // 26)},{i % 2}" for i in range(60)]
    films.write_text("\n".join(["text,label", *rows]) + "\n")
    data = ("--train-file", films, "--test-file", films, "--max-length", "16")
    runs = [tmp_path / f"seed{seed}" for seed in (0, 1)]
    for seed, run in enumerate(runs):
        rosewood("train", "--model", checkpoint, *data, "--epochs", "0.5", "--seed", seed, "--output", run)

    soup = tmp_path / "soup"
    printed = rosewood("average", *runs, "--output", soup, "--with-pretrained", "0.5", "--weight", 1, "--weight", 3)
    assert f"Next: rosewood evaluate {soup}" in printed
    said = json.loads((soup / "average.json").read_text())
    assert [part["weight"] for part in said["runs"]] == [0.25, 0.75]
    assert said["pretrained_share"] == 0.5
    assert json.loads((soup / "run.json").read_text())["command"].startswith("rosewood average ")
    assert "Robustness on films" in rosewood("evaluate", soup)
    assert (soup / "evaluation.json").exists()

    assert "exists already: choose another --output" in rosewood("average", *runs, "--output", soup, code=1)
    assert "nothing to average" in rosewood("average", runs[0], "--output", tmp_path / "x", code=1)
    assert "holds a finished run" in rosewood("train", "--output", soup, "--resume", code=1)
    assert not (tmp_path / "x").exists()
