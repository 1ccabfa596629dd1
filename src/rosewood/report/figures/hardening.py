"""Clean against robust accuracy of everything that a hardening has tried."""

from __future__ import annotations

import plotly.graph_objects as go

from rosewood.report.figures.style import colour, label, styled
from rosewood.results import Hardening
from rosewood.tensors.statistics import wilson_interval


def trade_off(state: Hardening) -> go.Figure:
    """A point for each candidate with its intervals; the start and the winner have colours of their own."""
    figure = go.Figure()
    start = state.tried[0]
    for each in state.tried:
        place = 1 if each is start else 0 if each.candidate == state.winner else 4
        figure.add_scatter(
            x=[each.clean_accuracy],
            y=[each.robust_accuracy],
            error_x=_interval(each.right),
            error_y=_interval(each.robust),
            text=[label(each.candidate)],
            textposition="top right",
            mode="markers+text",
            name=label(each.candidate),
            marker={"color": colour(place), "size": 11 if place < 2 else 8},
        )
    figure.add_vline(start.clean_accuracy - state.max_clean_loss / 100, line={"dash": "dot", "color": colour(4)})
    figure.update_xaxes(title_text="clean accuracy", tickformat=".0%")
    figure.update_yaxes(title_text=label(f"right under {' and '.join(state.threats)}", 60), tickformat=".0%")
    return styled(
        figure, "All candidates on held-out rows; dotted: the least clean accuracy that was allowed"
    ).update_layout(width=800, height=560, showlegend=False, margin={"l": 80, "r": 120, "t": 80, "b": 70})


def _interval(right: list[bool]) -> dict[str, object]:
    value, (low, high) = sum(right) / len(right), wilson_interval(sum(right), len(right))
    return {"type": "data", "array": [high - value], "arrayminus": [value - low], "thickness": 1}
