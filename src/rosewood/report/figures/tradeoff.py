"""What robustness costs in clean accuracy, or brings, as one setting changes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from statistics import mean

import plotly.graph_objects as go

from rosewood.lab.tradeoff import Tradeoff, TradeoffPoint
from rosewood.report.figures.style import colour, label, styled


def tradeoff(found: Tradeoff) -> go.Figure:
    """A curve for each recipe, through the means over seeds of each value; single runs have their intervals."""
    figure = go.Figure()
    for place, (recipe, runs) in enumerate(groupby(found.points, key=lambda point: point.recipe)):
        by_value = [list(points) for _, points in groupby(runs, key=lambda point: point.setting)]
        figure.add_scatter(
            x=[mean(point.clean.value for point in points) for points in by_value],
            y=[mean(point.robust.value for point in points) for points in by_value],
            error_x=_spread(by_value, "clean"),
            error_y=_spread(by_value, "robust"),
            text=[_written(points[0]) for points in by_value],
            textposition="top right",
            mode="lines+markers+text",
            name=label(recipe),
            line={"color": colour(place)},
        )
    figure.update_xaxes(title_text="clean accuracy", tickformat=".1%")
    figure.update_yaxes(title_text=f"accuracy under {label(found.under)}", tickformat=".1%")
    return styled(figure, f"Clean and robust accuracy over {label(found.over, longest=60)}").update_layout(
        width=700, height=500, showlegend=True, margin={"l": 80, "r": 30, "t": 80, "b": 90}
    )


def _written(point: TradeoffPoint) -> str:
    return label(point.setting) if isinstance(point.setting, str) else f"{point.setting:g}"


def _spread(by_value: Sequence[Sequence[TradeoffPoint]], axis: str) -> dict[str, object]:
    """The 95 % interval where there is one run; over several seeds, from the least to the most accurate."""
    above, below = [], []
    for points in by_value:
        found = [getattr(point, axis) for point in points]
        middle = mean(each.value for each in found)
        ends = found[0].interval if len(found) == 1 else tuple(each.value for each in found)
        above.append(max(ends) - middle)
        below.append(middle - min(ends))
    return {"type": "data", "array": above, "arrayminus": below, "thickness": 1}
