"""An experiment of seconds: a tiny checkpoint, a few sentences, and an engine without processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from rosewood.experiments.engines.local import Event
from rosewood.experiments.engines.worker import finish_cell as work
from rosewood.experiments.experiment import Experiment, read_experiment
from tiny_suite import LABELS, write
from tiny_text import save_tiny_checkpoint


class InThisProcess:
    """One cell after the other; remembers which."""

    def __init__(self) -> None:
        self.worked_on: list[str] = []

    def run(self, folders: Sequence[Path]) -> Iterator[Event]:
        for folder in folders:
            yield Event(folder, "started")
            self.worked_on.append(folder.name)
            work(folder)
            yield Event(folder, "ended")


def write_data(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "train.jsonl", 40, seed=0)
    write(folder / "validation.jsonl", 12, seed=1)
    write(folder / "test.jsonl", 40, seed=2)
    return folder


def write_experiment(folder: Path, **changes: Any) -> Path:
    """Files for 3 recipes x 1 task x 1 model x 2 seeds in a folder; the experiment's file is its path."""
    splits = {name: {"folder": {"file": f"{name}.jsonl"}} for name in ("train", "validation", "test")}
    task = {"name": "tiny", "title": "Tiny", "text": ["text"], "labels": LABELS, "splits": splits}
    (folder / "task.yaml").write_text(yaml.safe_dump(task))
    if not (folder / "checkpoint").exists():
        save_tiny_checkpoint(folder / "checkpoint", tuple(LABELS))
    raw: dict[str, Any] = {
        "recipes": [
            "vanilla",
            "rose-second",
            {"recipe": "r-drop", "label": "drop", "set": {"objective.divergence_weight": 0.5}},
        ],
        "tasks": [str(folder / "task.yaml")],
        "models": [str(folder / "checkpoint")],
        "seeds": [0, 1],
        "max_length": 16,
        "training": {
            "max_steps": 10,
            "per_device_train_batch_size": 4,
            "save_strategy": "steps",
            "save_steps": 2,
            "logging_steps": 2,
            "eval_strategy": "no",
        },
        "attacks": [{"attack": "typos", "examples": 6, "max_queries": 20}],
        "baseline": "vanilla",
    }
    file = folder / "tiny.yaml"
    file.write_text(yaml.safe_dump(raw | changes, sort_keys=False))
    return file


def tiny_experiment(folder: Path, **changes: Any) -> Experiment:
    return read_experiment(write_experiment(folder, **changes))
