"""How large gradients are beside their running averages: what ROSE's second order looks at."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, log10

import plotly.graph_objects as go

from rosewood.analysis.by_layer import ByLayer
from rosewood.figures.heat import heat_maps
from rosewood.figures.style import DIVERGING

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
