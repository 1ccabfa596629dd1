"""How often two dropout passes disagree as training goes on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

import plotly.graph_objects as go

from rosewood.analysis.inconsistency import Inconsistency
from rosewood.figures.style import colour, styled


def inconsistency(runs: Sequence[Inconsistency]) -> go.Figure:
    """The share of predictions that differ, over all steps so far, a curve for each run."""
    figure = go.Figure()
    for place, run in enumerate(runs):
        name, paint = PurePath(run.run).name, {"color": colour(place)}
        figure.add_scatter(x=run.steps, y=run.shares, name=name, mode="lines", line=paint)
    figure.update_xaxes(title_text="first steps")
    figure.update_yaxes(title_text="predictions that differ", tickformat=".1%", rangemode="tozero")
    return styled(figure, "Disagreement of two dropout passes, cumulative").update_layout(
        width=700, height=430, showlegend=True, margin={"l": 80, "r": 30, "t": 80, "b": 90}
    )
