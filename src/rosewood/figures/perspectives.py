"""The accuracy of each method from every perspective: clean, shifted, adversarial and noisy text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import plotly.graph_objects as go

from rosewood.evaluation.comparison import Figure
from rosewood.evaluation.means import ROLES, mean_interval
from rosewood.figures.dots import averaged, dots
from rosewood.results import Evaluation, Role

Methods = Mapping[str, Sequence[Evaluation]]
"""Method -> the evaluations of its runs."""


def perspectives(methods: Methods) -> go.Figure | None:
    """Means over the counted sets of each role, with intervals; nothing where there are fewer than two roles."""
    found = averaged(
        (role, method, accuracy)
        for method, evaluations in methods.items()
        for evaluation in evaluations
        for role, accuracy in role_accuracies(evaluation)
    )
    if len({each.row for each in found}) < 2:
        return None
    return dots(found, list(methods), "Accuracy from each perspective", "accuracy in %")


def role_accuracies(evaluation: Evaluation) -> Iterator[tuple[Role, Figure]]:
    """The mean accuracy over the counted sets of each role that has some."""
    for role in ROLES:
        sets = [each for each in evaluation.sets if each.role == role and each.counted]
        if sets:
            yield role, Figure(sum(each.accuracy for each in sets) / len(sets), mean_interval(sets))
