"""Expected calibration errors: by how much confidence misses accuracy on every set."""

from __future__ import annotations

import plotly.graph_objects as go

from rosewood.evaluation.means import MEASURED
from rosewood.evaluation.method_figures import Figure
from rosewood.figures.dots import averaged, dots
from rosewood.figures.perspectives import Methods


def calibration(methods: Methods) -> go.Figure | None:
    """One row for each clean, shifted or adversarial set; an interval only over seeds."""
    found = averaged(
        (each.name, method, Figure(each.ece))
        for method, runs in methods.items()
        for run in runs
        for each in run.sets
        if each.role in MEASURED
    )
    return dots(found, list(methods), "Expected calibration error", "error in %, lower is better") if found else None
