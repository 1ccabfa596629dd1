"""Loss and accuracy on the line through two models (ROSE, Figure 4)."""

from __future__ import annotations

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from rosewood.analysis.interpolation import Interpolation
from rosewood.figures.labels import label
from rosewood.figures.style import TEXT, colour, styled


def loss_along_the_line(line: Interpolation) -> go.Figure:
    """The loss on the left axis, the accuracy on the right one, and the two models as upright lines."""
    figure = make_subplots(specs=[[{"secondary_y": True}]])
    curves = [("loss", line.losses, "solid", False), ("accuracy", line.accuracies, "dash", True)]
    for place, (name, values, dash, right) in enumerate(curves):
        style = {"color": colour(place), "dash": dash}
        figure.add_scatter(x=line.shares, y=values, name=name, mode="lines", line=style, secondary_y=right)
    for share, name in ((0.0, line.first), (1.0, line.second)):
        if line.shares[0] <= share <= line.shares[-1]:
            figure.add_vline(x=share, line={"color": TEXT, "dash": "dot", "width": 1})
            note = {"x": share, "y": 1, "xref": "x", "yref": "paper", "yanchor": "bottom", "showarrow": False}
            figure.add_annotation(text=label(name), **note)
    figure.update_xaxes(title={"text": "share of the second model's weights"})
    figure.update_yaxes(title={"text": "loss"}, secondary_y=False)
    figure.update_yaxes(title={"text": "accuracy"}, tickformat=".0%", secondary_y=True)
    title = f"From {label(line.first)} to {label(line.second)}"
    styled(figure, f"{title}: {label(line.source, longest=60)}" if line.source else title)
    figure.update_yaxes(showgrid=False, secondary_y=True)
    return figure.update_layout(width=760, height=480, margin={"l": 70, "r": 80, "t": 90, "b": 90})
