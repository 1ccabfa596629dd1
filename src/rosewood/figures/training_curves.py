"""What training was like: one logged quantity over the steps of every run."""

from __future__ import annotations

from collections.abc import Mapping

import plotly.graph_objects as go

from rosewood.analysis.curves import Curve
from rosewood.figures.labels import axis_title, label
from rosewood.figures.series import mark
from rosewood.figures.style import styled


def training_curves(curves: Mapping[str, Curve], quantity: str, places: Mapping[str, int]) -> go.Figure:
    """One line a run; `places` says whose colour a run has, as runs of one method share it."""
    figure = go.Figure()
    for run, curve in curves.items():
        look = mark(places[run])
        figure.add_scatter(
            x=curve.steps,
            y=curve.values,
            mode="lines",
            name=label(run),
            line={"color": look.colour, "dash": look.dash, "width": 1.5},
            hovertext=[f"{label(run)}, step {step:g}: {value:.4g}" for step, value in zip(*curve, strict=True)],
            hoverinfo="text",
        )
    styled(figure, label(quantity.replace("_", " ")))
    figure.update_layout(showlegend=True, height=300)
    figure.update_xaxes(title=axis_title("step"), zeroline=False)
    # Plotly would write a learning rate of 5e-5 as 50µ.
    figure.update_yaxes(automargin=True, zeroline=False, exponentformat="e")
    return figure
