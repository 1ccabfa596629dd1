"""How far runs go from their pre-trained weights: over steps, and layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from rosewood.analysis.drift import Drift
from rosewood.figures.style import colour, styled


def drift(runs: Sequence[Drift]) -> go.Figure:
    """Left: the encoder's relative distance over steps. Right: that of each layer after the last recorded step."""
    layers = list(dict.fromkeys(layer for run in runs for layer in run.layers.layers))
    figure = make_subplots(1, 2, subplot_titles=["whole encoder", "each layer, at the end"], horizontal_spacing=0.12)
    for place, run in enumerate(runs):
        name, paint = PurePath(run.run).name, {"color": colour(place)}
        figure.add_scatter(x=run.steps, y=run.encoder, name=name, mode="lines", line=paint, row=1, col=1)
        ends = {layer: value for layer, value in run.last().items() if layer in layers}
        figure.add_scatter(
            x=[layers.index(layer) for layer in ends],
            y=list(ends.values()),
            name=name,
            mode="lines+markers",
            line=paint,
            showlegend=False,
            row=1,
            col=2,
        )
    figure.update_xaxes(title_text="step", row=1, col=1)
    figure.update_xaxes(tickvals=list(range(len(layers))), ticktext=layers, tickangle=60, row=1, col=2)
    figure.update_yaxes(title_text="|θ − θ₀| / |θ₀|", rangemode="tozero", row=1, col=1)
    figure.update_yaxes(type="log", row=1, col=2)  # a pooler can go ten times as far as the rest
    title = "Relative distance to the pre-trained weights"
    return styled(figure, title).update_layout(width=900, height=460, margin={"l": 70, "r": 30, "t": 80, "b": 110})
