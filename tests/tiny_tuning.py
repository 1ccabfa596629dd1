"""A search of seconds: a tiny checkpoint, and texts that say of which split they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from rosewood.experiments.tuning.trials import Tuning
from rosewood.experiments.tuning.tune import tune
from tiny_text import save_tiny_checkpoint

LETTERS = "abcdefghijklmnopqrstuvwxyz"
SEARCH: dict[str, Any] = {"learning_rate": "1e-5..1e-2:log", "training.weight_decay": [0.0, 0.1]}


def write_rows(file: Path, kind: str, count: int) -> Path:
    rows = [
        f"{kind} {'good' if i % 2 else 'bad'} film {LETTERS[i % 26]} {LETTERS[i // 26]},{i % 2}" for i in range(count)
    ]
    file.write_text("\n".join(["text,label", *rows]) + "\n", encoding="utf-8")
    return file


def write_task(folder: Path, **splits: Any) -> Path:
    """A task with three files."""
    for kind, count in (("train", 60), ("validation", 20), ("test", 20)):
        write_rows(folder / f"{kind}.csv", kind, count)
    files = {kind: {"folder": {"file": str(folder / f"{kind}.csv")}} for kind in ("train", "validation", "test")}
    task = {"name": "tiny", "title": "Tiny", "text": ["text"], "labels": ["0", "1"], "splits": files | splits}
    file = folder / "task.yaml"
    file.write_text(yaml.safe_dump(task), encoding="utf-8")
    return file


class Place:
    """A task and a checkpoint on which to search."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.task, self.model = folder, write_task(folder), save_tiny_checkpoint(folder / "tiny")

    def tune(self, output: str, search: Any = SEARCH, recipe: Any = "vanilla", **changes: Any) -> Tuning:
        settings: dict[str, Any] = {
            "output": self.folder / output,
            "task": self.task,
            "model": str(self.model),
            "max_length": 24,
            "trials": 4,
            "training": {"num_train_epochs": 2, "per_device_train_batch_size": 16},
            "console": Console(quiet=True),
        }
        return tune(search, recipe, **settings | changes)
