"""The accuracy of each method on every set of a perspective."""

from __future__ import annotations

import plotly.graph_objects as go

from rosewood.evaluation.method_figures import Figure
from rosewood.figures.dots import averaged, dots
from rosewood.figures.perspectives import Methods
from rosewood.guessing import is_guessing
from rosewood.results import Role


def sets(methods: Methods, role: Role) -> go.Figure | None:
    """One row for each set of the role; nothing if there is none."""
    found = averaged(
        (each.name, method, Figure(each.accuracy, each.interval, is_guessing(run)))
        for method, runs in methods.items()
        for run in runs
        for each in run.sets
        if each.role == role
    )
    return dots(found, list(methods), f"Accuracy on {role} sets", "accuracy in %") if found else None
