"""What one recipe has over another, seed by seed: runs of the same seed saw the same rows."""

from __future__ import annotations

from collections.abc import Sequence

from rosewood.comparison.matched_accuracy import matched
from rosewood.comparison.methods import figures_of
from rosewood.results import CellResult, ComparedFigure

Gains = dict[str, dict[int, float]]
"""Figure -> seed -> what one recipe has over another, as a share."""


def gains_at_end(figures: Sequence[ComparedFigure], ours: str, theirs: str) -> Gains:
    """After training, of the seeds that both have."""
    before = {each.figure: each.values for each in figures if each.label == theirs}
    return {
        each.figure: {seed: each.values[seed] - other[seed] for seed in each.values.keys() & other.keys()}
        for each in figures
        if each.label == ours and (other := before.get(each.figure)) is not None
    }


def gains_at_match(results: Sequence[CellResult], ours: str, theirs: str) -> Gains:
    """Where the two are matched, whatever the other recipes have reached.

    A recipe that has not learnt a task pulls the level of all down to guessing; it spoils its own pair alone.
    """
    pair = [result for result in results if result.label in (ours, theirs)]
    matches = matched(pair)
    measured = {
        (result.label, result.task, result.seed): dict(figures_of(matches[result.fingerprint].moment.evaluation))
        for result in pair
        if result.fingerprint in matches
    }
    gains: Gains = {}
    for (label, task, seed), figures in measured.items():
        other = measured.get((theirs, task, seed), {})
        for name in figures.keys() & other.keys() if label == ours else ():
            gains.setdefault(" ".join(name.split()), {})[seed] = figures[name].value - other[name].value
    return gains
