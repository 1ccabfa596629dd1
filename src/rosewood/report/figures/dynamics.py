"""Figures of training: drift, masks, inconsistency, ROSE's second-order ratio, and logged curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, log10
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from rosewood.dynamics.drift import Drift
from rosewood.dynamics.inconsistency import Inconsistency
from rosewood.dynamics.record import ByLayer
from rosewood.report.figures.style import DIVERGING, SEQUENTIAL, axis_title, drawn, folded, label, mark, styled
from rosewood.results.run import Curve

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


def mask_heatmap(shares: Sequence[ByLayer], title: str = "Share that may move") -> go.Figure:
    """Kept shares over steps, from 0 to 1, of layers or kinds of tensors: a panel for each table."""
    colours = {"colorscale": SEQUENTIAL, "zmin": 0, "zmax": 1}
    return heat_maps(shares, title, "kept", colours)


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


REACH = 1.0
"""Colours go from a ratio of 0.1 to 10: from a gradient as large as its running average to 100 times that."""


def second_order(ratios: Sequence[ByLayer]) -> go.Figure:
    """The ratio of each layer over steps, by powers of ten; in the middle of the colours, at 0, risk is lowest.

    There the gradient is ten times its running average (beta1 = 0.9).
    """
    tables = [table._replace(values=[[_power(value) for value in row] for row in table.values]) for table in ratios]
    colours = {"colorscale": DIVERGING, "zmin": -REACH, "zmax": REACH}
    title = "Second-order ratio (1 − β₁) |g| / |m|, median of each layer"
    return heat_maps(tables, title, "log10", colours)


def _power(ratio: float | None) -> float | None:
    return None if ratio is None or ratio in (0, inf) else log10(ratio)


def training_curves(curves: Mapping[str, Curve], quantity: str, places: Mapping[str, int]) -> go.Figure:
    """One line per run; `places` says whose colour a run has, as runs of one method share it."""
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
