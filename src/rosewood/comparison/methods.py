"""The figures of methods, seed by seed, and whether they are better than a baseline's by more than chance."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from rosewood.comparison.attacks import UNDER, attacked, is_of_a_task
from rosewood.comparison.runs import AT_GUESSING, EVERYTHING, NO_ATTACK, UNSEEN, EvaluatedRun, Untested, shared_tasks
from rosewood.comparison.statistics import SHARE, glue_aggregates, holm, mean_and_deviation, seed_interval, welch
from rosewood.comparison.table import MEANS, has_noise_curves
from rosewood.results import Evaluation, Role
from rosewood.results.guessing import is_guessing

GAP, WORST_GROUP, _INCONSISTENT = "gap\n", "worst group\n", "\ninconsistent until "
SUMMARIES = ("mean", "drop")
"""ROSE's columns over the tasks of a suite: the mean of all accuracies, and the mean drop from clean to adversarial."""


class Figure(NamedTuple):
    """A figure of one run, its 95 % interval if it is an accuracy, and what speaks against a test of it."""

    value: float
    interval: tuple[float, float] | None = None
    guessing: bool = False
    unseen: bool = False
    """Of a noise that changes no token, so that it is the figure of the clean set again."""


Figures = Mapping[str, Mapping[str, Mapping[int | None, Figure]]]
"""Method -> column -> seed -> its figure."""


def mean_of(figures: Sequence[Figure], bounds: tuple[float, float] = SHARE) -> Figure:
    """The mean over seeds with its 95 % interval, if there is one; the figure of a single run as it is."""
    if len(figures) == 1:
        return figures[0]
    values = [each.value for each in figures]
    guessing = any(each.guessing for each in figures)
    return Figure(mean_and_deviation(values)[0], seed_interval(values, bounds), guessing)


def bounds_of(column: str) -> tuple[float, float]:
    """What the figures of a column can be: differences of shares may be negative."""
    return (-1.0, 1.0) if column == "drop" or column.startswith(GAP) else SHARE


def figures_by_method(methods: Mapping[str, Sequence[EvaluatedRun]]) -> Figures:
    """All figures of some methods; a suite over several tasks has columns for each, and their summaries."""
    found: dict[str, dict[str, dict[int | None, Figure]]] = {method: {} for method in methods}
    for method, runs in methods.items():
        for run in runs:
            for column, figure in figures_of_run(run):
                found[method].setdefault(column, {})[run.seed] = figure
    for each in attacked([run for runs in methods.values() for run in runs]):
        if not each.summary.attacked:
            continue
        summary = each.summary
        guessing = is_guessing(each.run.evaluation)
        figure = Figure(summary.robust_accuracy, summary.robust_interval, guessing)
        found[each.run.method].setdefault(each.column, {})[each.run.seed] = figure
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
    return is_of_a_task(evaluation) and set(_SIDES) <= {each.role for each in evaluation.sets}


def _accuracy(evaluation: Evaluation, role: Role) -> float:
    return float(np.mean([each.accuracy for each in evaluation.sets if each.role == role]))


def figures_of_run(run: EvaluatedRun) -> Iterator[tuple[str, Figure]]:
    """The figures of its evaluation without attacks, and how often dropout changed its predictions in training."""
    yield from _without_attacks(run.evaluation)
    for steps, share in run.inconsistency.items():
        yield f"{run.evaluation.task}{_INCONSISTENT}{steps}", Figure(share)


def figures_of(evaluation: Evaluation) -> Iterator[tuple[str, Figure]]:
    """The figures of an evaluation that a table of methods shows, by column."""
    yield from _without_attacks(evaluation)
    for attack in (each for each in evaluation.attacks if each.summary.attacked):
        of = evaluation.task if is_of_a_task(evaluation) else attack.of
        robust = attack.summary
        yield (
            f"{UNDER}{attack.attack}\n{of}",
            Figure(robust.robust_accuracy, robust.robust_interval, is_guessing(evaluation)),
        )


def _without_attacks(evaluation: Evaluation) -> Iterator[tuple[str, Figure]]:
    guessing = is_guessing(evaluation)
    if evaluation.suite is None or is_of_a_task(evaluation):
        curves = has_noise_curves(evaluation)  # then their mean is shown
        sets = [each for each in evaluation.sets if not (curves and each.noise)]
        yield from ((each.name, Figure(each.accuracy, each.interval, guessing, each.unseen)) for each in sets)
        noise = next((each for each in evaluation.means if each.name == "noise"), None)
        if curves and noise is not None:
            yield noise.name, Figure(noise.value, noise.interval, guessing)
    else:
        means = [each for each in evaluation.means if each.name in MEANS]
        yield from ((each.name, Figure(each.value, each.interval, guessing)) for each in means)
    clean = next((each for each in evaluation.sets if each.role == "clean"), None)
    if clean is not None and clean.worst is not None and clean.gap is not None:
        yield f"{WORST_GROUP}{clean.name}", Figure(clean.worst.accuracy, clean.worst.interval, guessing)
        yield f"{GAP}{clean.name}", Figure(clean.gap, guessing=guessing)


def lower_is_better(column: str) -> bool:
    return column in ("ece", "held_out_ece", "drop")


class OverSeeds(NamedTuple):
    """The p-value of a test over seeds, as it is and adjusted for all tests of its family."""

    p: float
    adjusted: float


def over_seeds(values: Figures, baseline: str, worse: bool = False) -> dict[tuple[str, str], OverSeeds]:
    """Method and column -> whether its figure is better than the baseline's, or worse.

    Two families are adjusted, each for all of its tests: the summaries over tasks, and the figures that they summarise.
    Worst groups and gaps are left out: they are chosen or derived from what is tested, and would only dilute it.
    Dropout inconsistency is neither good nor bad. Runs at guessing are not tested: robust is what they look, not what
    they are.
    """
    families: dict[bool, dict[str, float]] = {True: {}, False: {}}
    for method, columns in values.items():
        for column, ours in columns.items():
            theirs = values[baseline].get(column, {})
            if method == baseline or not _is_tested(column) or why_untested(ours, theirs):
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


def why_untested(ours: Mapping[int | None, Figure], theirs: Mapping[int | None, Figure]) -> str:
    """Why figures of two methods have no test over seeds; empty if nothing speaks against one."""
    if any(each.guessing for side in (ours, theirs) for each in side.values()):
        return AT_GUESSING
    if all(each.unseen for side in (ours, theirs) for each in side.values()):
        return UNSEEN
    if min(len(ours), len(theirs)) < 2:
        return "both methods need two seeds or more"
    constant = all(len({each.value for each in side.values()}) == 1 for side in (ours, theirs))
    return "the same in all seeds" if constant else ""


def untested_over_seeds(values: Figures, baseline: str) -> list[Untested]:
    """What could have been tested over seeds and was not."""
    found = []
    for method, columns in values.items():
        whys = {
            " ".join(MEANS.get(column, column).split()): why_untested(ours, values[baseline].get(column, {}))
            for column, ours in columns.items()
            if method != baseline and _is_tested(column)
        }
        alike = len(whys) > 1 and len(set(whys.values())) == 1
        reasons = {EVERYTHING: next(iter(whys.values()))} if alike else whys
        found += [Untested(method, what, why) for what, why in reasons.items() if why]
    if not any(column.startswith(UNDER) for columns in values.values() for column in columns):
        found += [Untested(method, *NO_ATTACK) for method in values if method != baseline]
    return found


def _is_tested(column: str) -> bool:
    return not column.startswith((GAP, WORST_GROUP)) and _INCONSISTENT not in column
