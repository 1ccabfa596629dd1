"""The sheet of a picture: panels, axes, legends and notes, from Plotly's values."""

from __future__ import annotations

import html
import math
import re
from typing import Any

import numpy as np
import plotly.graph_objects as go
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.transforms import blended_transform_factory

from rosewood.errors import DataError

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


INK, FAINT = "#333333", "#dddddd"  # paper is white, so print may be darker than figures on pages of unknown colour
DASHES = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-.", "longdash": (0, (8, 3)), "longdashdot": "-."}
SYMBOLS = {
    **{"circle": "o", "square": "s", "diamond": "D", "cross": "P", "x": "X", "star": "*"},
    **{"triangle-up": "^", "triangle-down": "v", "triangle-left": "<", "triangle-right": ">"},
}


def numbers(values: Any) -> np.ndarray:
    """Values as floats; what is missing becomes NaN."""
    return np.array(values, dtype=float)


def places(given: Any, count: int) -> tuple[np.ndarray, list[str]]:
    """Coordinates along an axis, and the names to write there if it has names instead of numbers."""
    if given is None:
        return np.arange(count, dtype=float), []
    if any(isinstance(one, str) for one in given):
        return np.arange(count, dtype=float), [plain(one) for one in given]
    return numbers(given), []


def spreads(error: Any) -> np.ndarray | None:
    """Lengths of error bars below and above, or none."""
    if error.array is None or error.visible is False:
        return None
    above = numbers(error.array)
    return np.stack([above if error.arrayminus is None else numbers(error.arrayminus), above])


def paints(colour: Any) -> Any:
    """A colour as Matplotlib reads it; a list becomes a list."""
    if not isinstance(colour, str):
        return [paints(one) for one in colour]
    found = re.fullmatch(r"rgba?\(([^)]*)\)", colour.strip())
    if not found:
        return colour
    red, green, blue, *alpha = (float(part) for part in found[1].split(","))
    return (red / 255, green / 255, blue / 255, *alpha)


def plain(text: Any) -> str:
    """Plotly's little HTML as plain text."""
    broken = re.sub(r"<br\s*/?>", "\n", "" if text is None else str(text))
    return html.unescape(re.sub(r"</?[a-z][^>]*>", "", broken))


def dress_axis(axis: Any, given: Any) -> None:
    """Title, scale, range, ticks and direction of a flat axis."""
    name = axis.axis_name
    owner = axis.axes
    if given.type == "log":
        getattr(owner, f"set_{name}scale")("log")
        # Matplotlib would write powers as formulas, and text is never one here.
        axis.set_major_formatter(ticker.StrMethodFormatter("{x:g}"))
        axis.set_minor_formatter(ticker.NullFormatter())
    axis.set_label_text(plain(given.title.text))
    if given.range is not None:
        bounds = [10**end for end in given.range] if given.type == "log" else list(given.range)
        getattr(owner, f"set_{name}lim")(bounds)
    elif given.autorange == "reversed":
        getattr(owner, f"invert_{name}axis")()
    elif given.rangemode == "tozero":
        lowest, highest = axis.get_data_interval()
        getattr(owner, f"set_{name}lim")(0 if lowest >= 0 else None, 0 if highest <= 0 else None)
    if given.tickvals is not None:
        axis.set_ticks(given.tickvals, [plain(text) for text in given.ticktext or given.tickvals])
    elif found := re.fullmatch(r"\.(\d)%", given.tickformat or ""):
        axis.set_major_formatter(ticker.PercentFormatter(1.0, decimals=int(found[1])))
    if given.showticklabels is False:
        axis.set_ticklabels([])
        axis.set_tick_params(length=0)
    if given.showgrid is False:
        axis.grid(visible=False)
    if given.scaleanchor:
        owner.set_aspect("equal", adjustable="box")
    if given.tickangle is not None:
        axis.set_tick_params(rotation=-given.tickangle)
    axis.set_tick_params(colors=INK, labelsize=8)
    if given.visible is False:
        axis.set_visible(False)


def dress_scene(axes: Any, scene: Any) -> None:
    """Titles, ranges and the viewer's place in a panel of three dimensions."""
    for name in ("x", "y", "z"):
        axis = scene[f"{name}axis"]
        getattr(axes, f"set_{name}label")(plain(axis.title.text), fontsize=8)
        if axis.range is not None:
            getattr(axes, f"set_{name}lim")(axis.range)
        axes.tick_params(axis=name, labelsize=7)
    axes.set_box_aspect(None, zoom=0.82)  # Matplotlib writes the numbers of the axes outside of the panel
    eye = scene.camera.eye
    if None not in (eye.x, eye.y, eye.z):
        axes.view_init(
            math.degrees(math.atan2(eye.z, math.hypot(eye.x, eye.y))), math.degrees(math.atan2(eye.y, eye.x))
        )


def draw_line_across(drawing: Drawing, shape: Any) -> None:
    """A straight line, as `add_hline` and `add_vline` make it."""
    if shape.type != "line":
        raise DataError(f"Pictures draw shapes of type line; got {shape.type!r}. Save as .html or .json.")
    x, y = shape.xref.split(" ")[0], shape.yref.split(" ")[0]
    axes = drawing.flat_panel(x if x != "paper" else "x", y if y != "paper" else "y")
    style: dict[str, Any] = {
        "color": paints(shape.line.color or INK),
        "linewidth": shape.line.width or 1,
        "linestyle": DASHES[shape.line.dash or "solid"],
    }
    if shape.y0 == shape.y1:
        axes.axhline(shape.y0, **style)
    elif shape.x0 == shape.x1:
        axes.axvline(shape.x0, **style)
    else:
        axes.plot([shape.x0, shape.x1], [shape.y0, shape.y1], **style)


def write_note(drawing: Drawing, note: Any) -> None:
    """Text on the figure: titles of panels, and notes beside points."""
    sideways = {"left": "left", "right": "right"}.get(note.xanchor, "center")
    upright = {"top": "top", "bottom": "bottom"}.get(note.yanchor, "center")
    style: dict[str, Any] = {"ha": sideways, "va": upright, "rotation": -(note.textangle or 0), "fontsize": 9}
    if note.xref in (None, "paper") and note.yref in (None, "paper"):
        drawing.figure.text(drawing.on_paper(note.x, "x"), drawing.on_paper(note.y, "y"), plain(note.text), **style)
        return
    x, y = (note.xref or "x").split(" "), (note.yref or "y").split(" ")
    axes = drawing.flat_panel(x[0] if x[0] != "paper" else "x", y[0] if y[0] != "paper" else "y")
    to_data, to_panel = axes.transData, axes.transAxes
    both = blended_transform_factory(
        to_panel if x[0] == "paper" or "domain" in x else to_data,
        to_panel if y[0] == "paper" or "domain" in y else to_data,
    )
    axes.text(note.x, note.y, plain(note.text), transform=both, **style)


def draw_legend(drawing: Drawing) -> None:
    """One legend for the whole figure; hidden names stay out, and one that several traces share stands once."""
    wanted = [
        trace for trace in drawing.source.data if trace.name and trace.showlegend is not False and shows_name(trace)
    ]
    if drawing.layout.showlegend is False or not wanted or (len(wanted) == 1 and not drawing.layout.showlegend):
        return
    names = {plain(trace.name) for trace in wanted}
    found: dict[str, Any] = {}
    for axes in drawing.panels.values():
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            if label in names:
                found.setdefault(label, handle)
    if found:
        style: dict[str, Any] = {
            "loc": "lower center",
            "ncols": min(4, len(found)),
            "fontsize": 8,
            "frameon": False,
        }
        drawing.figure.legend(list(found.values()), list(found), **style)


def shows_name(trace: Any) -> bool:
    """Plotly lists lines, points and bars in its legend by themselves, coloured areas only when asked."""
    return trace.type in ("scatter", "bar")
