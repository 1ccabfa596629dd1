"""The sheet: how large it is, and where on it the panels are."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from rosewood.figures.picture.axes import dress_scene
from rosewood.figures.picture.reading import FAINT

PIXELS_AN_INCH = 100
MARGIN = {"l": 80, "r": 80, "t": 100, "b": 80}  # Plotly's own defaults


class Drawing:
    """A Matplotlib figure, and in it the panels of a Plotly figure, each made when first asked for."""

    def __init__(self, figure: go.Figure) -> None:
        self.source = figure
        self.layout = figure.layout
        self.width, self.height = self.layout.width or 700, self.layout.height or 450
        size = (self.width / PIXELS_AN_INCH, self.height / PIXELS_AN_INCH)
        self.figure = Figure(figsize=size, facecolor="white")
        FigureCanvasAgg(self.figure)
        self.panels: dict[tuple[str, str], Axes] = {}
        self.explained: set[str] = set()  # colour axes that have their bar
        self.colourways = self.layout.colorway or ["#0072b2", "#d55e00", "#42a584"]

    def panel(self, trace: Any) -> Axes:
        """The axes that a trace belongs to, made when first asked for."""
        if trace.type == "surface":
            name = trace.scene or "scene"
            if (name, name) not in self.panels:
                scene = self.layout[name]
                axes = self.figure.add_axes(self.box(scene.domain.x, scene.domain.y), projection="3d")
                dress_scene(axes, scene)
                self.panels[name, name] = axes
            return self.panels[name, name]
        return self.flat_panel(trace.xaxis or "x", trace.yaxis or "y")

    def flat_panel(self, x: str, y: str) -> Axes:
        if (x, y) not in self.panels:
            across, up = self.layout[axis_name(x)], self.layout[axis_name(y)]
            if up.overlaying:
                axes = self.flat_panel(x, up.overlaying).twinx()
                axes.grid(False)
            else:
                axes = self.figure.add_axes(self.box(across.domain, up.domain))
                axes.grid(True, color=FAINT, linewidth=0.6)
                axes.set_axisbelow(True)
            self.panels[x, y] = axes
        return self.panels[x, y]

    def box(
        self, across: tuple[float, float] | None, up: tuple[float, float] | None
    ) -> tuple[float, float, float, float]:
        """Left, bottom, width and height of a domain, as shares of the whole figure."""
        (left, right), (low, high) = across or (0, 1), up or (0, 1)
        x0, x1, y0, y1 = (
            self.on_paper(left, "x"),
            self.on_paper(right, "x"),
            self.on_paper(low, "y"),
            self.on_paper(high, "y"),
        )
        return x0, y0, x1 - x0, y1 - y0

    def on_paper(self, share: float, axis: str) -> float:
        """A share of the plotting area as a share of the whole figure."""
        start, end, total = ("l", "r", self.width) if axis == "x" else ("b", "t", self.height)
        margin = {side: MARGIN[side] if (given := self.layout.margin[side]) is None else given for side in (start, end)}
        return float((margin[start] + share * (total - margin[start] - margin[end])) / total)


def axis_name(short: str) -> str:
    """`x2` -> `xaxis2`."""
    return f"{short[0]}axis{short[1:]}"
