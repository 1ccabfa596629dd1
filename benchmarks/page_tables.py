"""What the pages that are written from results have in common: pipe tables, and differences with their intervals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean

from rosewood.comparison.statistics import t_interval


def markdown(rows: Iterable[Sequence[str]]) -> str:
    """A pipe table of rows, of which the first two are its header and its alignment."""
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def with_interval(gains: Sequence[float]) -> str:
    """The mean of some differences with its 95 % interval; a single one as it is, and a dash for none."""
    if len(gains) < 2:
        return _signed(gains[0]) if gains else "-"
    low, high = t_interval(gains)
    return f"{_signed(fmean(gains))} ({_signed(low)} to {_signed(high)})"


def _signed(points: float) -> str:
    return f"{round(points, 1) + 0.0:+.1f}"  # adding zero takes the sign off a negative one
