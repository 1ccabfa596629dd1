"""Accuracy by the strength of a noise: how fast each method falls."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from rosewood.evaluation.method_figures import Figure, mean_of
from rosewood.figures.labels import axis_title, label
from rosewood.figures.perspectives import Methods
from rosewood.figures.series import mark
from rosewood.figures.style import styled
from rosewood.guessing import is_guessing, marked
from rosewood.results import Evaluation


def noise_kinds(methods: Methods) -> list[str]:
    """The noises that were measured at two strengths or more, as a curve needs."""
    measured = {
        (each.noise.kind, each.noise.strength): None
        for runs in methods.values()
        for run in runs
        for each in run.sets
        if each.noise
    }
    kinds = [kind for kind, _ in measured]
    return [kind for kind in dict.fromkeys(kinds) if kinds.count(kind) > 1]


def noise_curves(methods: Methods, kind: str) -> go.Figure:
    """One curve a method, from the text as it is to the strongest noise."""
    figure = go.Figure()
    for place, (method, runs) in enumerate(methods.items()):
        curve = _curve(runs, kind)
        ends = [each.interval or (each.value, each.value) for each in curve.values()]
        look = mark(place)
        figure.add_scatter(
            x=list(curve),
            y=[100 * each.value for each in curve.values()],
            error_y={
                "array": [
                    100 * (min(1, high) - each.value) for each, (_, high) in zip(curve.values(), ends, strict=True)
                ],
                "arrayminus": [
                    100 * (each.value - max(0, low)) for each, (low, _) in zip(curve.values(), ends, strict=True)
                ],
                "thickness": 1,
                "width": 2,
            },
            mode="lines+markers",
            name=marked(label(method), any(map(is_guessing, runs))),
            line={"color": look.colour, "dash": look.dash, "width": 2},
            marker={"color": look.colour, "symbol": look.symbol, "size": 6},
            hovertext=[f"{label(method)} at {at:g}: {100 * each.value:.1f} %" for at, each in curve.items()],
            hoverinfo="text",
        )
    styled(figure, label(kind.replace("_", " ")))
    figure.update_layout(showlegend=True, height=300)
    figure.update_xaxes(title=axis_title("strength"), zeroline=False)
    figure.update_yaxes(title=axis_title("accuracy in %"), range=_range(methods), automargin=True, zeroline=False)
    return figure


def _range(methods: Methods) -> list[float]:
    """The same for every kind, so that the steepness of their curves compares."""
    curves = [_curve(runs, kind) for runs in methods.values() for kind in noise_kinds(methods)]
    ends = [end for curve in curves for each in curve.values() for end in each.interval or (each.value,)]
    return [100 * max(0.0, min(ends)) - 2, 100 * min(1.0, max(ends)) + 2]


def _curve(runs: Sequence[Evaluation], kind: str) -> dict[float, Figure]:
    """Strength -> accuracy; strength 0 is the set that the noise was made from."""
    points: dict[float, list[Figure]] = {}
    for run in runs:
        noisy = [each for each in run.sets if each.noise and each.noise.kind == kind]
        plain = {each.noise.of for each in noisy if each.noise}
        for each in run.sets:
            strength = each.noise.strength if each.noise else 0.0
            if each in noisy or each.name in plain:
                points.setdefault(strength, []).append(Figure(each.accuracy, each.interval))
    return {strength: mean_of(points[strength]) for strength in sorted(points)}
