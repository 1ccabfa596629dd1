"""Finished runs as analyses need them: found, named, and with a progress bar."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from rosewood.errors import RunError
from rosewood.models.open import run_info
from rosewood.results import RunInfo


def finished_run(folder: Path) -> RunInfo:
    """What a finished run says of itself; any other folder is refused."""
    info = run_info(folder)
    if info is None:
        what = "is not a run of Rosewood (no run.json)" if folder.exists() else "does not exist"
        raise RunError(f"{folder} {what}: expected the --output of a finished rosewood train")
    return info


PRETRAINED = "pre-trained"
"""What the model that runs started from is called, so that no run may be."""


def run_names(runs: Sequence[Path]) -> list[str]:
    """Their folders' names, or, where two are the same or one is taken, the whole paths."""
    if len({folder.resolve() for folder in runs}) < len(runs):
        raise RunError("expected different runs, got one twice: name each once.")
    short = [folder.resolve().name for folder in runs]
    if len({*short, PRETRAINED}) == len(runs) + 1:
        return short
    return ["-".join(folder.resolve().parts[1:]) for folder in runs]


def progress_bar(shown: bool) -> Progress:
    """How much is done and how long the rest takes; on a terminal it moves, elsewhere only its end is printed."""
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), MofNCompleteColumn())
    return Progress(*columns, TimeRemainingColumn(elapsed_when_finished=True), disable=not shown)
