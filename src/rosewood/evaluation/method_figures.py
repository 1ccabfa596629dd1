"""The figures of methods, seed by seed, and whether they are better than a baseline's by more than chance."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from rosewood.evaluation.evaluated_runs import EvaluatedRun
from rosewood.evaluation.shared_tasks import shared_tasks
from rosewood.evaluation.statistics import glue_aggregates, holm, mean_and_deviation, t_interval, welch
from rosewood.evaluation.table import MEANS, has_noise_curves
from rosewood.results import Evaluation, Role

_GAP, WORST_GROUP, _INCONSISTENT = "gap\n", "worst group\n", "\ninconsistent until "
SUMMARIES = ("mean", "drop")
"""ROSE's columns over the tasks of a suite: the mean of all accuracies, and the mean drop from clean to adversarial."""


class Figure(NamedTuple):
    """A figure of one run, and its 95 % interval if it is an accuracy."""

    value: float
    interval: tuple[float, float] | None = None


Figures = Mapping[str, Mapping[str, Mapping[int | None, Figure]]]
"""Method -> column -> seed -> its figure."""


def mean_of(figures: Sequence[Figure]) -> Figure:
    """The mean over seeds with its 95 % interval by Student's t; the figure of a single run as it is."""
    if len(figures) == 1:
        return figures[0]
    values = [each.value for each in figures]
    return Figure(mean_and_deviation(values)[0], t_interval(values))


def figures_by_method(methods: Mapping[str, Sequence[EvaluatedRun]]) -> Figures:
    """All figures of some methods; a suite over several tasks has columns for each, and their summaries."""
    found: dict[str, dict[str, dict[int | None, Figure]]] = {method: {} for method in methods}
    for method, runs in methods.items():
        for run in runs:
            for column, figure in figures_of_run(run):
                found[method].setdefault(column, {})[run.seed] = figure
    for method, seeds in shared_tasks(methods).by_seed.items():
        for seed, evaluations in seeds.items():
            for column, figure in _summaries(evaluations):
                found[method].setdefault(column, {})[seed] = figure
    return found


def _summaries(evaluations: Sequence[Evaluation]) -> Iterator[tuple[str, Figure]]:
    """Mean and drop over the tasks of a suite that have both clean and adversarial sets."""
    both = [each for each in evaluations if is_summarised(each)]
    if both:
        sides = ({each.task: _accuracy(each, role) for each in both} for role in _SIDES)
        yield from zip(SUMMARIES, map(Figure, glue_aggregates(*sides)), strict=True)


_SIDES: tuple[Role, Role] = ("clean", "adversarial")


def is_summarised(evaluation: Evaluation) -> bool:
    """Whether it is of one task of a suite over several, and has both sides of mean and drop."""
    is_of_a_task = evaluation.suite is not None and evaluation.task != evaluation.suite
    return is_of_a_task and set(_SIDES) <= {each.role for each in evaluation.sets}


def _accuracy(evaluation: Evaluation, role: Role) -> float:
    return float(np.mean([each.accuracy for each in evaluation.sets if each.role == role]))


def figures_of_run(run: EvaluatedRun) -> Iterator[tuple[str, Figure]]:
    """The figures of its evaluation, and how often dropout changed its predictions while it trained."""
    yield from figures_of(run.evaluation)
    for steps, share in run.inconsistency.items():
        yield f"{run.evaluation.task}{_INCONSISTENT}{steps}", Figure(share)


def figures_of(evaluation: Evaluation) -> Iterator[tuple[str, Figure]]:
    """The figures of a run that a table of methods shows, by column."""
    by_task = evaluation.suite is not None and evaluation.task != evaluation.suite
    if evaluation.suite is None or by_task:
        curves = has_noise_curves(evaluation)  # then their mean is shown
        sets = [each for each in evaluation.sets if not (curves and each.noise)]
        yield from ((each.name, Figure(each.accuracy, each.interval)) for each in sets)
        noise = next((each for each in evaluation.means if each.name == "noise"), None)
        if curves and noise is not None:
            yield noise.name, Figure(noise.value, noise.interval)
    else:
        yield from ((each.name, Figure(each.value, each.interval)) for each in evaluation.means if each.name in MEANS)
    clean = next((each for each in evaluation.sets if each.role == "clean"), None)
    if clean is not None and clean.worst is not None and clean.gap is not None:
        yield f"{WORST_GROUP}{clean.name}", Figure(clean.worst.accuracy, clean.worst.interval)
        yield f"{_GAP}{clean.name}", Figure(clean.gap)
    for attack in (each for each in evaluation.attacks if each.summary.attacked):
        of = evaluation.task if by_task else attack.of  # the columns of several tasks must differ
        yield f"under {attack.attack}\n{of}", Figure(attack.summary.robust_accuracy, attack.summary.robust_interval)


def lower_is_better(column: str) -> bool:
    return column in ("ece", "held_out_ece", "drop")


class OverSeeds(NamedTuple):
    """The p-value of a test over seeds, as it is and adjusted for all tests of its family."""

    p: float
    adjusted: float


def over_seeds(values: Figures, baseline: str, worse: bool = False) -> dict[tuple[str, str], OverSeeds]:
    """Method and column -> whether its figure is better than the baseline's, or worse.

    Two families are adjusted, each for all of its tests: the summaries over tasks, and the figures that they summarise.
    Worst groups and gaps are no family: they are chosen or derived from what is tested, and would only dilute it.
    Dropout inconsistency is neither good nor bad.
    """
    families: dict[bool, dict[str, float]] = {True: {}, False: {}}
    for method, columns in values.items():
        for column, ours in columns.items():
            theirs = values[baseline].get(column, {})
            if method == baseline or not _is_tested(column) or min(len(ours), len(theirs)) < 2:
                continue
            sign = -1 if lower_is_better(column) != worse else 1
            p = welch(*([sign * each.value for each in side.values()] for side in (ours, theirs)))
            if p is not None:
                families[column in SUMMARIES][json.dumps([method, column])] = p
    return {
        tuple(json.loads(name)): OverSeeds(tests[name], adjusted)
        for tests in families.values()
        for name, adjusted in holm(tests).items()
    }


def _is_tested(column: str) -> bool:
    return not column.startswith((_GAP, WORST_GROUP)) and _INCONSISTENT not in column
