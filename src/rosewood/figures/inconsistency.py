"""How often two dropout passes disagree as training goes on."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from rosewood.analysis.inconsistency import Inconsistency
from rosewood.figures.labels import axis_title, label
from rosewood.figures.series import drawn, mark
from rosewood.figures.style import styled


def inconsistency(runs: Sequence[Inconsistency], places: Sequence[int] | None = None) -> go.Figure:
    """The share of predictions that differ, over all steps so far; `places` decides the colours of runs."""
    figure = go.Figure()
    for run, place in zip(runs, places or range(len(runs)), strict=True):
        shown, look = drawn(run.steps), mark(place)
        line = {"color": look.colour, "dash": look.dash}
        figure.add_scatter(x=run.steps[shown], y=run.shares[shown], name=label(run.run), mode="lines", line=line)
    figure.update_xaxes(title=axis_title("first steps"))
    figure.update_yaxes(title=axis_title("predictions that differ"), tickformat=".1%", rangemode="tozero")
    return styled(figure, "Disagreement of two dropout passes, cumulative").update_layout(
        width=700, height=430, showlegend=True, margin={"l": 80, "r": 30, "t": 80, "b": 90}
    )
