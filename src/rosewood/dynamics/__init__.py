"""What can be watched while a model trains, one file each; `WATCHES` has them by name."""

from pathlib import Path

from rosewood.dynamics.drift import DriftWatch
from rosewood.dynamics.inconsistency import InconsistencyWatch
from rosewood.dynamics.masks import MaskWatch
from rosewood.dynamics.record import Watch, read_seen

WATCHES: dict[str, type[Watch]] = {watch.name: watch for watch in (MaskWatch, DriftWatch, InconsistencyWatch)}


def was_watched(run: str | Path) -> list[str]:
    """The watches that a run has records of."""
    return [name for name, watch in WATCHES.items() if watch.seen.path(run).exists()]
