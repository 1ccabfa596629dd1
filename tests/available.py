"""Which splits of a task can be loaded here."""

from __future__ import annotations

from pathlib import Path

from rosewood.data.loading import load_split, needs_hub
from rosewood.data.tasks import Task
from rosewood.errors import AbsentError


def available_splits(task: Task, folder: Path | None = None) -> list[str]:
    """Those whose source is here; one on the Hub counts, whether the Hub answers or not."""
    return [name for name in task.splits if _is_available(task, name, folder)]


def _is_available(task: Task, name: str, folder: Path | None) -> bool:
    try:
        return needs_hub(task, name, folder) or len(load_split(task, name, folder)) > 0
    except AbsentError:
        return False
