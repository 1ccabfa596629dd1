"""Figures of calibration: errors on every set, and reliability diagrams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from rosewood.comparison.methods import Figure
from rosewood.evaluation.means import MEASURED
from rosewood.report.figures.charts import averaged, dots
from rosewood.report.figures.evaluation import Methods
from rosewood.report.figures.style import TEXT, axis_title, label, mark, styled
from rosewood.results import Evaluation


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


class Bin(NamedTuple):
    """All examples of one confidence bin, over seeds."""

    examples: int
    confidence: float
    accuracy: float


def reliability(methods: Methods, name: str) -> go.Figure | None:
    """Accuracy by confidence on one set; on the diagonal a model is as sure as it is right."""
    figure = go.Figure()
    for place, (method, runs) in enumerate(methods.items()):
        bins = _pooled(runs, name)
        if bins:
            look = mark(place)
            figure.add_scatter(
                x=[each.confidence for each in bins],
                y=[each.accuracy for each in bins],
                mode="lines+markers",
                name=label(method),
                line={"color": look.colour, "dash": look.dash, "width": 2},
                marker={"color": look.colour, "symbol": look.symbol, "size": 6},
                hovertext=[
                    f"{label(method)}<br>sure {each.confidence:.0%}, right {each.accuracy:.0%} of {each.examples}"
                    for each in bins
                ],
                hoverinfo="text",
            )
    if not figure.data:
        return None
    diagonal = {"x0": 0, "y0": 0, "x1": 1, "y1": 1, "xref": "x", "yref": "y"}
    figure.add_shape(type="line", **diagonal, line={"color": TEXT, "width": 1, "dash": "dash"})
    styled(figure, label(name))
    figure.update_layout(showlegend=True, height=300)
    figure.update_xaxes(title=axis_title("confidence"), tickformat=".0%", range=[0, 1.02], zeroline=False)
    figure.update_yaxes(
        title=axis_title("accuracy"), tickformat=".0%", range=[0, 1.05], automargin=True, zeroline=False
    )
    return figure


def _pooled(runs: Sequence[Evaluation], name: str) -> list[Bin]:
    together: dict[float, list[Bin]] = {}
    for point in (point for run in runs for each in run.sets if each.name == name for point in each.reliability):
        if point.examples and point.confidence is not None and point.accuracy is not None:
            together.setdefault(point.low, []).append(Bin(point.examples, point.confidence, point.accuracy))
    return [_merged(together[low]) for low in sorted(together)]


def _merged(bins: Sequence[Bin]) -> Bin:
    examples = sum(each.examples for each in bins)
    confidence = sum(each.examples * each.confidence for each in bins) / examples
    return Bin(examples, confidence, sum(each.examples * each.accuracy for each in bins) / examples)
