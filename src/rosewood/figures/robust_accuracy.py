"""What attacks leave of each method's accuracy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import plotly.graph_objects as go

from rosewood.evaluation.method_figures import Figure
from rosewood.figures.dots import averaged, dots
from rosewood.guessing import guesses_before
from rosewood.results import AttackSummary

Attacked = Mapping[str, Mapping[str, Sequence[AttackSummary]]]
"""Attack -> method -> what it came to in each of its runs."""


def robust_accuracy(attacked: Attacked, methods: Sequence[str]) -> go.Figure | None:
    """Two rows an attack: the accuracy on the attacked examples before, and under attack."""
    found = averaged(_figures(attacked))
    return dots(found, methods, "Accuracy before and under attack", "accuracy in %") if found else None


def _figures(attacked: Attacked) -> Iterator[tuple[str, str, Figure]]:
    for attack, by_method in attacked.items():
        for method, summaries in by_method.items():
            for each in (summary for summary in summaries if summary.attacked):
                guessing = guesses_before(each)
                yield f"before {attack}", method, Figure(each.clean_accuracy, each.clean_interval, guessing)
                yield f"under {attack}", method, Figure(each.robust_accuracy, each.robust_interval, guessing)
