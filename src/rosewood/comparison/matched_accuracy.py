"""Recipes at matched clean accuracy: one that learns more slowly is less accurate, and for that alone looks robust.

For each model, task and seed there is a level: the lowest of the recipes' final validation accuracies. Every recipe is
taken at its first moment with at least this validation accuracy, and reported there. Validation data alone choose the
moment; no evaluation set has a say in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rosewood.comparison.statistics import mean_and_deviation
from rosewood.comparison.table import percent
from rosewood.results import CellResult, MatchedMoment, Moment
from rosewood.results.grid import Grid


class Match(NamedTuple):
    """The accuracy that a cell had to reach, and the moment at which it did."""

    level: float
    moment: Moment


def matched(results: Sequence[CellResult]) -> dict[str, Match]:
    """Fingerprint of a cell -> its match, for all cells that have moments."""
    watched = [result for result in results if result.moments]
    levels: dict[tuple[str, str, int], float] = {}
    for result in watched:
        final = result.moments[-1].validation_accuracy
        levels[_place(result)] = min(final, levels.get(_place(result), final))
    return {result.fingerprint: _match(result.moments, levels[_place(result)]) for result in watched}


def _place(result: CellResult) -> tuple[str, str, int]:
    return result.model, result.task, result.seed


def _match(moments: Sequence[Moment], level: float) -> Match:
    """The last moment is the end, which reaches the level by its definition."""
    return Match(level, next(moment for moment in moments if moment.validation_accuracy >= level))


def at_match(result: CellResult, match: Match) -> CellResult:
    """A cell as it was at its match: without attacks, which are carried out at the end alone, and other histories."""
    return result.model_copy(update={"evaluation": match.moment.evaluation, "inconsistency": {}})


def described(result: CellResult, match: Match) -> MatchedMoment:
    """Which moment was chosen for a cell, and why."""
    return MatchedMoment(
        model=result.model,
        task=result.task,
        label=result.label,
        seed=result.seed,
        level=match.level,
        step=match.moment.step,
        steps=result.steps,
        validation_accuracy=match.moment.validation_accuracy,
    )


def grid_of(moments: Sequence[MatchedMoment]) -> Grid:
    """The chosen moments: means over seeds, one row for each recipe, task and model."""
    groups: dict[tuple[str, str, str], list[MatchedMoment]] = {}
    for each in moments:
        groups.setdefault((each.task, each.model, each.label), []).append(each)
    rows = [
        [
            *key,
            str(len(found)),
            percent(_mean([each.level for each in found])),
            percent(_mean([each.validation_accuracy for each in found])),
            f"{_mean([float(each.step) for each in found]):.0f}",
            f"{_mean([float(each.steps) for each in found]):.0f}",
        ]
        for key, found in groups.items()
    ]
    excess = max(each.validation_accuracy - each.level for each in moments)
    return Grid(
        "Moments of matched clean accuracy",
        ["task", "model", "method", "seeds", "level", "validation", "steps", "steps\nin all"],
        rows,
        "Level: the lowest final validation accuracy of the methods, for each task, model and seed; a method is taken "
        "at its first measured moment that reaches it. Accuracies in %, means over seeds. The farthest moment lies "
        f"{100 * excess:.1f} points above its level. A level near that of guessing comes from a method that has not "
        "learnt the task; then only first steps are compared.",
        texts=3,
    )


def _mean(values: Sequence[float]) -> float:
    return mean_and_deviation(values)[0]
