"""Layers, or other parts of a model, over steps: a panel for each run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from rosewood.analysis.by_layer import ByLayer
from rosewood.figures.labels import label
from rosewood.figures.series import drawn
from rosewood.figures.style import styled


def heat_maps(tables: Sequence[ByLayer], title: str, scale: str, colours: dict[str, Any]) -> go.Figure:
    """One heat map below the other, with one scale of colours; the first layer is at the bottom, as in the model."""
    names = [label(table.run, longest=60) for table in tables]
    figure = make_subplots(len(tables), 1, subplot_titles=names, vertical_spacing=0.3 / (len(tables) + 1))
    for row, table in enumerate(tables, 1):
        shown = drawn(table.steps)
        low, high = figure.layout[f"yaxis{row}" if row > 1 else "yaxis"].domain
        figure.add_heatmap(
            x=table.steps[shown],
            y=[label(layer, longest=40) for layer in table.layers],
            z=[values[shown] for values in table.values],
            # One for each panel, so that pictures give all of them the same width.
            colorbar={"title": {"text": scale}, "y": (low + high) / 2, "len": high - low},
            hovertemplate="step %{x}, %{y}: %{z:.3g}<extra></extra>",
            row=row,
            col=1,
            **colours,
        )
    figure.update_xaxes(title_text="step", row=len(tables), col=1)
    longest = max(len(layer) for table in tables for layer in table.layers)
    rows = sum(max(len(table.layers), 6) for table in tables)
    return styled(figure, title).update_layout(
        width=900, height=140 + 60 * len(tables) + 24 * rows, margin={"l": 40 + 7 * longest, "r": 30, "t": 80, "b": 60}
    )
