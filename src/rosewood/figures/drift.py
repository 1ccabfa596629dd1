"""How far runs go from their pre-trained weights: over steps, and layer by layer."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from rosewood.analysis.drift import Drift
from rosewood.figures.labels import axis_title, label
from rosewood.figures.series import drawn, mark
from rosewood.figures.style import styled

TITLE = "Relative distance to the pre-trained weights"


def drift(runs: Sequence[Drift]) -> go.Figure:
    """Left: the encoder's relative distance over steps. Right: that of each layer after the last recorded step."""
    figure = make_subplots(1, 2, subplot_titles=["whole encoder", "each layer, at the end"], horizontal_spacing=0.12)
    layers = _layers(runs)
    for place, run in enumerate(runs):
        figure.add_trace(_over_steps(run, place), row=1, col=1)
        figure.add_trace(_by_layer(run, place, layers).update(showlegend=False), row=1, col=2)
    figure.update_xaxes(title_text="step", row=1, col=1)
    figure.update_xaxes(tickvals=list(range(len(layers))), ticktext=layers, tickangle=60, row=1, col=2)
    figure.update_yaxes(title_text="|θ − θ₀| / |θ₀|", rangemode="tozero", row=1, col=1)
    figure.update_yaxes(type="log", row=1, col=2)  # a pooler can go ten times as far as the rest
    size = {"width": 900, "height": 460, "margin": {"l": 70, "r": 30, "t": 80, "b": 110}}
    return styled(figure, TITLE).update_layout(**size, showlegend=True)


def drift_over_steps(runs: Sequence[Drift], places: Sequence[int]) -> go.Figure:
    """The left half alone; `places` says whose colour a run has, as runs of one method share it."""
    figure = go.Figure([_over_steps(run, place) for run, place in zip(runs, places, strict=True)])
    figure.update_xaxes(title=axis_title("step"), zeroline=False)
    figure.update_yaxes(rangemode="tozero", automargin=True, zeroline=False)
    return styled(figure, TITLE).update_layout(height=340)


def drift_by_layer(runs: Sequence[Drift], places: Sequence[int]) -> go.Figure:
    """The right half alone."""
    layers = _layers(runs)
    figure = go.Figure([_by_layer(run, place, layers) for run, place in zip(runs, places, strict=True)])
    figure.update_xaxes(tickvals=list(range(len(layers))), ticktext=layers, tickangle=60, automargin=True)
    figure.update_yaxes(type="log", automargin=True)
    return styled(figure, "The same of each layer, at the end").update_layout(height=340)


def _layers(runs: Sequence[Drift]) -> list[str]:
    return [label(layer) for layer in dict.fromkeys(layer for run in runs for layer in run.layers.layers)]


def _over_steps(run: Drift, place: int) -> go.Scatter:
    shown, look = drawn(run.steps), mark(place)
    line = {"color": look.colour, "dash": look.dash}
    return go.Scatter(x=run.steps[shown], y=run.encoder[shown], name=label(run.run), mode="lines", line=line)


def _by_layer(run: Drift, place: int, layers: Sequence[str]) -> go.Scatter:
    look = mark(place)
    ends = {name: value for layer, value in run.last().items() if (name := label(layer)) in layers}
    return go.Scatter(
        x=[layers.index(layer) for layer in ends],
        y=list(ends.values()),
        name=label(run.run),
        mode="lines+markers",
        line={"color": look.colour, "dash": look.dash},
        marker={"symbol": look.symbol},
    )
