"""The accuracy of each method from every perspective: clean, shifted, adversarial and noisy text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import plotly.graph_objects as go

from rosewood.evaluation.evaluated_runs import EvaluatedRun
from rosewood.evaluation.means import ROLES, interval_of_mean, mean_interval
from rosewood.evaluation.method_figures import Figure
from rosewood.evaluation.shared_tasks import shared_tasks
from rosewood.figures.dots import averaged, dots
from rosewood.guessing import is_guessing
from rosewood.results import Evaluation, Role

Methods = Mapping[str, Sequence[Evaluation]]
"""Method -> the evaluations of its runs."""


def perspectives(methods: Mapping[str, Sequence[EvaluatedRun]]) -> go.Figure | None:
    """Means over the counted sets of each role, with intervals; nothing where there are fewer than two roles.

    Tasks are no seeds: the tasks that all methods have are averaged within each seed before the interval over seeds.
    """
    shared = shared_tasks(methods)
    found = averaged(
        (row, method, figure)
        for method, seeds in shared.by_seed.items()
        for evaluations in seeds.values()
        for row, figure in _over_tasks(evaluations)
    )
    if len({each.row for each in found}) < 2:
        return None
    axis = "accuracy in %" if len(shared.tasks) == 1 else f"mean accuracy over {len(shared.tasks)} tasks in %"
    return dots(found, list(methods), "Accuracy from each perspective", axis)


def _over_tasks(evaluations: Sequence[Evaluation]) -> Iterator[tuple[str, Figure]]:
    """The mean of each role over the tasks of one seed; a role that not all of them have says so."""
    by_role: dict[Role, list[Figure]] = {}
    for evaluation in evaluations:
        for role, accuracy in role_accuracies(evaluation):
            by_role.setdefault(role, []).append(accuracy)
    for role, figures in by_role.items():
        lacking = len(figures) < len(evaluations)
        yield f"{role}, {len(figures)} of {len(evaluations)} tasks" if lacking else role, _mean(figures)


def _mean(figures: Sequence[Figure]) -> Figure:
    """Of one model for each task, whose examples differ."""
    values = [each.value for each in figures]
    intervals = [each.interval or (each.value, each.value) for each in figures]
    return Figure(
        sum(values) / len(values), interval_of_mean(values, intervals), any(each.guessing for each in figures)
    )


def role_accuracies(evaluation: Evaluation) -> Iterator[tuple[Role, Figure]]:
    """The mean accuracy over the counted sets of each role that has some."""
    for role in ROLES:
        sets = [each for each in evaluation.sets if each.role == role and each.counted]
        if sets:
            mean = sum(each.accuracy for each in sets) / len(sets)
            yield role, Figure(mean, mean_interval(sets), is_guessing(evaluation))
