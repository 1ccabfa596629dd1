"""Which splits of a task can be loaded here."""

from __future__ import annotations

from pathlib import Path

from rosewood.data.loading import source_identity
from rosewood.data.tasks import Task


def available_splits(task: Task, folder: Path | None = None) -> list[str]:
    """Those whose source is here; one on the Hub counts, whether the Hub answers or not."""
    return [name for name in task.splits if source_identity(task, name, folder) != "absent"]
