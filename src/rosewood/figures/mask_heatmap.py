"""Which layers a selection lets move, step by step."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from rosewood.analysis.by_layer import ByLayer
from rosewood.figures.heat import heat_maps
from rosewood.figures.style import SEQUENTIAL


def mask_heatmap(shares: Sequence[ByLayer]) -> go.Figure:
    """The kept share of each layer's tensors over steps, from 0 to 1, a panel for each run."""
    colours = {"colorscale": SEQUENTIAL, "zmin": 0, "zmax": 1}
    return heat_maps(shares, "Share of each layer that may move", "kept", colours)
