"""Which layers a selection lets move, step by step."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from rosewood.analysis.by_layer import ByLayer
from rosewood.figures.heat import heat_maps
from rosewood.figures.style import SEQUENTIAL


def mask_heatmap(shares: Sequence[ByLayer], title: str = "Share that may move") -> go.Figure:
    """Kept shares over steps, from 0 to 1, of layers or kinds of tensors: a panel for each table."""
    colours = {"colorscale": SEQUENTIAL, "zmin": 0, "zmax": 1}
    return heat_maps(shares, title, "kept", colours)
