"""Layers, or other parts of a model, over steps: a panel for each run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from rosewood.analysis.by_layer import ByLayer
from rosewood.figures.labels import axis_title, folded, label
from rosewood.figures.series import drawn
from rosewood.figures.style import styled

LINE = 24  # pixels; a layer whose name takes two lines gets one and a half


def heat_maps(tables: Sequence[ByLayer], title: str, scale: str, colours: dict[str, Any]) -> go.Figure:
    """One heat map below the other, with one scale of colours; the first layer is at the bottom, as in the model."""
    titles = [label(table.run, longest=60) for table in tables]
    names = [[folded(layer) for layer in table.layers] for table in tables]
    figure = make_subplots(len(tables), 1, subplot_titles=titles, vertical_spacing=0.3 / (len(tables) + 1))
    for row, table in enumerate(tables, 1):
        shown = drawn(table.steps)
        low, high = figure.layout[f"yaxis{row}" if row > 1 else "yaxis"].domain
        figure.add_heatmap(
            x=table.steps[shown],
            y=names[row - 1],
            z=[values[shown] for values in table.values],
            # One for each panel, so that pictures give all of them the same width.
            colorbar={"title": axis_title(scale), "thickness": 12, "y": (low + high) / 2, "len": high - low},
            hovertemplate="step %{x}, %{y}: %{z:.3g}<extra></extra>",
            row=row,
            col=1,
            **colours,
        )
    figure.update_xaxes(title=axis_title("step"), row=len(tables), col=1)
    longest = max(len(line) for layers in names for name in layers for line in name.split("<br>"))
    lines = sum(max(6, sum(1 + name.count("<br>") / 2 for name in layers)) for layers in names)
    return styled(figure, title).update_layout(
        width=900,
        height=140 + 60 * len(tables) + LINE * lines,
        margin={"l": 40 + 7 * longest, "r": 30, "t": 80, "b": 60},
    )
