"""Sentences to begin with: a few short ones of the task's own data."""

from __future__ import annotations

from pathlib import Path

from rosewood.data.loading import load_split, needs_hub
from rosewood.data.tasks import Task
from rosewood.errors import DataError

SAMPLES = 4
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
    short: dict[int, list[list[str]]] = {label: [] for label in range(len(task.labels))}
    for *texts, label in zip(*(rows[field][:] for field in task.text), rows["label"][:], strict=True):
        if sum(map(len, texts)) <= SHORT:
            short[label].append([*texts, task.labels[label]])
    each = max(1, SAMPLES // len(task.labels))
    return [row for found in short.values() for row in found[:each]][:SAMPLES]
