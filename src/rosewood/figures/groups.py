"""The accuracy of each method on the groups of a set: by class, length, negation, rare words, or a column."""

from __future__ import annotations

import plotly.graph_objects as go

from rosewood.evaluation.method_figures import Figure
from rosewood.figures.dots import averaged, dots
from rosewood.figures.labels import label
from rosewood.figures.perspectives import Methods
from rosewood.guessing import is_guessing


def groups(methods: Methods, name: str) -> go.Figure | None:
    """One row for each group of the set; nothing if it was not divided."""
    found = averaged(
        (f"{group.kind}: {group.group}", method, Figure(group.accuracy, group.interval, is_guessing(run)))
        for method, runs in methods.items()
        for run in runs
        for each in run.sets
        if each.name == name
        for group in each.groups
    )
    return dots(found, list(methods), f"Groups of {label(name)}", "accuracy in %") if found else None
