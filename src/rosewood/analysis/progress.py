"""The bar of an analysis that takes a while."""

from __future__ import annotations

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


def progress_bar(shown: bool) -> Progress:
    """How much is done and how long the rest takes; on a terminal it moves, elsewhere only its end is printed."""
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), MofNCompleteColumn())
    return Progress(*columns, TimeRemainingColumn(elapsed_when_finished=True), disable=not shown)
