"""Sentences to begin with: a few short ones of the task's own data."""

from __future__ import annotations

from pathlib import Path

from rosewood.data.loading import load_split, needs_hub
from rosewood.data.tasks import Task
from rosewood.errors import DataError

SAMPLES = 6
SHORT = 160
"""Characters of all texts of an example together."""


def samples(task: Task, data_dir: Path | None) -> list[list[str]]:
    """The texts and the label of a few examples; none where the data are not at hand: nothing is fetched."""
    split = "test" if "test" in task.splits else "validation"
    try:
        if needs_hub(task, split, data_dir):
            return []
        rows = load_split(task, split, data_dir, 20 * SAMPLES)
    except DataError:
        return []
    columns = [rows[field][:] for field in task.text]
    found = [
        [*texts, task.labels[label]]
        for *texts, label in zip(*columns, rows["label"][:], strict=True)
        if sum(map(len, texts)) <= SHORT
    ]
    return found[:SAMPLES]
