"""A Plotly figure drawn by Matplotlib: pictures for papers without a browser.

It knows the traces and layout that Rosewood's figures use, and refuses the rest by name instead of leaving it out.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Callable
from io import BytesIO
from typing import Any

import matplotlib
import numpy as np
import plotly.graph_objects as go
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure

from rosewood.errors import DataError

PIXELS_AN_INCH = 100
INK, FAINT = "#333333", "#dddddd"  # paper is white, so print may be darker than figures on pages of unknown colour
MARGIN = {"l": 80, "r": 80, "t": 100, "b": 80}  # Plotly's own defaults
DASHES = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-.", "longdash": (0, (8, 3)), "longdashdot": "-."}
SYMBOLS = {
    **{"circle": "o", "square": "s", "diamond": "D", "cross": "P", "x": "X", "star": "*"},
    **{"triangle-up": "^", "triangle-down": "v", "triangle-left": "<", "triangle-right": ">"},
}
# No date and no random ids, so that the same figure gives the same bytes; text is text, never a formula.
SETTINGS: dict[Any, Any] = {
    "svg.hashsalt": "rosewood",
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
    "text.parse_math": False,
}
DATELESS = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}


def picture(figure: go.Figure, format: str) -> bytes:
    """The bytes of the figure as png, svg or pdf."""
    with matplotlib.rc_context({**SETTINGS, "text.color": INK, "axes.labelcolor": INK}):
        drawn = Drawing(figure).draw()
        file = BytesIO()
        drawn.savefig(file, format=format, dpi=2 * PIXELS_AN_INCH, metadata=DATELESS[format])
    return file.getvalue()


class Drawing:
    """One figure on its way from Plotly to Matplotlib."""

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

    def draw(self) -> Figure:
        draws: dict[str, Callable[[Axes, Any, str], None]] = {
            "scatter": draw_scatter,
            "bar": self.draw_bar,
            "heatmap": self.draw_heatmap,
            "contour": self.draw_contour,
            "surface": self.draw_surface,
        }
        for place, trace in enumerate(self.source.data):
            if trace.type not in draws:
                known = ", ".join(draws)
                raise DataError(
                    f"Pictures are drawn from traces of type {known}; got {trace.type!r}. Save as .html or .json."
                )
            if trace.visible in (None, True):
                draws[trace.type](self.panel(trace), trace, self.colourways[place % len(self.colourways)])
        for shape in self.layout.shapes:
            self.draw_line_across(shape)
        for annotation in self.layout.annotations:
            self.write(annotation)
        self.finish()
        return self.figure

    # Panels

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

    # Traces

    def draw_bar(self, axes: Axes, trace: Any, colour: str) -> None:
        flat = trace.orientation == "h"
        names, values = bar_sides(trace)
        places, width, base = self.bar_places(trace, names)
        error = trace.error_x if flat else trace.error_y
        draw, spread = (axes.barh, "xerr") if flat else (axes.bar, "yerr")
        options: dict[str, Any] = {
            "left" if flat else "bottom": base,
            spread: spreads(error),
            "ecolor": INK,
            "capsize": 2,
        }
        paint = trace.marker.color if trace.marker.color is not None else colour
        draw(places, values, width, color=paints(paint), label=plain(trace.name), **options)
        known = self.bar_names(trace)
        if all(isinstance(name, str) for name in known):
            (axes.set_yticks if flat else axes.set_xticks)(range(len(known)), [plain(name) for name in known])

    def fellow_bars(self, trace: Any) -> list[Any]:
        """The bar traces of a panel, in their order."""
        panel = (trace.xaxis, trace.yaxis)
        return [other for other in self.source.data if other.type == "bar" and (other.xaxis, other.yaxis) == panel]

    def bar_names(self, trace: Any) -> list[Any]:
        """What the bars of a panel stand for, in the order of first mention."""
        return list(dict.fromkeys(name for other in self.fellow_bars(trace) for name in bar_sides(other)[0]))

    def bar_places(self, trace: Any, names: list[Any]) -> tuple[np.ndarray, float, np.ndarray]:
        """Where the bars of a trace stand, how wide they are and where they begin: beside or on their fellows."""
        fellows, known = self.fellow_bars(trace), self.bar_names(trace)
        worded = all(isinstance(name, str) for name in known)
        middle = np.array([known.index(name) if worded else name for name in names], dtype=float)
        before = next(place for place, other in enumerate(fellows) if other is trace)
        mode = self.layout.barmode or "group"
        if mode == "group":
            width = 0.8 / len(fellows)
            return middle + (before - (len(fellows) - 1) / 2) * width, width, np.zeros(len(names))
        if mode not in ("stack", "overlay"):
            raise DataError(
                f"Pictures draw bars in mode group, stack or overlay; got {mode!r}. Save as .html or .json."
            )
        base = np.zeros(len(names))
        for other in fellows[:before] if mode == "stack" else ():
            heights = dict(zip(*bar_sides(other), strict=True))
            base += [heights.get(name, 0.0) for name in names]
        return middle, 0.8, base

    def draw_heatmap(self, axes: Axes, trace: Any, colour: str) -> None:
        z = numbers(trace.z)
        x, x_names = places(trace.x, z.shape[1])
        y, y_names = places(trace.y, z.shape[0])
        mesh = axes.pcolormesh(x, y, z, shading="nearest", **self.colouring(trace, z))
        axes.grid(False)
        if x_names:
            axes.set_xticks(x, x_names)
        if y_names:
            axes.set_yticks(y, y_names)
        if trace.texttemplate:
            self.write_cells(axes, trace, x, y, z, mesh)
        self.bar_of_colours(trace, mesh, axes)

    def write_cells(self, axes: Axes, trace: Any, x: np.ndarray, y: np.ndarray, z: np.ndarray, mesh: Any) -> None:
        for (row, column), value in np.ndenumerate(z):
            if np.isfinite(value):
                text = cell_text(trace, row, column, float(value))
                dark = np.dot(mesh.cmap(mesh.norm(value))[:3], (0.299, 0.587, 0.114)) < 0.5
                axes.text(
                    float(x[column]),
                    float(y[row]),
                    text,
                    ha="center",
                    va="center",
                    fontsize=8,
                    color="white" if dark else INK,
                )

    def draw_contour(self, axes: Axes, trace: Any, colour: str) -> None:
        z = numbers(trace.z)
        x, y = places(trace.x, z.shape[1])[0], places(trace.y, z.shape[0])[0]
        colours = self.colouring(trace, z)
        step = trace.contours
        levels = np.arange(step.start, step.end + step.size / 2, step.size) if step.size is not None else 15
        if step.coloring == "lines":
            mesh = axes.contour(x, y, z, levels=levels, linewidths=1, **colours)
        else:
            mesh = axes.contourf(x, y, z, levels=levels, extend="both", **colours)
            axes.contour(x, y, z, levels=mesh.levels, colors=INK, linewidths=0.4)
        if step.showlabels:
            axes.clabel(mesh, fontsize=7)
        self.bar_of_colours(trace, mesh, axes)

    def draw_surface(self, axes: Any, trace: Any, colour: str) -> None:
        z = numbers(trace.z)
        x, y = np.meshgrid(places(trace.x, z.shape[1])[0], places(trace.y, z.shape[0])[0])
        colours = self.colouring(trace, z, low="cmin", high="cmax")
        mesh = axes.plot_surface(x, y, z, rcount=z.shape[0], ccount=z.shape[1], linewidth=0, **colours)
        self.bar_of_colours(trace, mesh, axes)

    def colouring(self, trace: Any, z: np.ndarray, low: str = "zmin", high: str = "zmax") -> dict[str, Any]:
        """Colour map and bounds of a trace, or of the colour axis that it shares."""
        owner = trace
        if trace.coloraxis:
            owner, low, high = self.layout[trace.coloraxis], "cmin", "cmax"
        finite = z[np.isfinite(z)] if np.isfinite(z).any() else np.zeros(1)
        bottom, top = (
            (finite.min() if owner[low] is None else owner[low]),
            (finite.max() if owner[high] is None else owner[high]),
        )
        middle = owner[low[0] + "mid"]
        if middle is not None and owner[low] is None:
            reach = max(top - middle, middle - bottom)
            bottom, top = middle - reach, middle + reach
        return {"cmap": colour_map(owner.colorscale, bool(owner.reversescale)), "norm": Normalize(bottom, top)}

    def bar_of_colours(self, trace: Any, mesh: Any, axes: Axes) -> None:
        """What the colours mean, beside the panel, or once at the right for all panels that share a colour axis."""
        if trace.coloraxis:
            owner = self.layout[trace.coloraxis]
            if trace.coloraxis in self.explained or owner.showscale is False:
                return
            self.explained.add(trace.coloraxis)
            left, bottom = self.on_paper(owner.colorbar.x or 1.02, "x"), self.on_paper(0.1, "y")
            place = self.figure.add_axes((left, bottom, 0.012, self.on_paper(0.9, "y") - bottom))
            bar = self.figure.colorbar(mesh, cax=place)
        elif trace.showscale is False:
            return
        else:
            owner, bar = trace, self.figure.colorbar(mesh, ax=axes, shrink=0.8)
        bar.set_label(plain(owner.colorbar.title.text), fontsize=8)
        bar.ax.tick_params(labelsize=7)

    # Around the traces

    def draw_line_across(self, shape: Any) -> None:
        """A straight line, as `add_hline` and `add_vline` make it."""
        if shape.type != "line":
            raise DataError(f"Pictures draw shapes of type line; got {shape.type!r}. Save as .html or .json.")
        x, y = shape.xref.split(" ")[0], shape.yref.split(" ")[0]
        axes = self.flat_panel(x if x != "paper" else "x", y if y != "paper" else "y")
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

    def write(self, note: Any) -> None:
        """Text on the figure: titles of panels, and notes beside points."""
        sideways = {"left": "left", "right": "right"}.get(note.xanchor, "center")
        upright = {"top": "top", "bottom": "bottom"}.get(note.yanchor, "center")
        style: dict[str, Any] = {"ha": sideways, "va": upright, "rotation": -(note.textangle or 0), "fontsize": 9}
        if note.xref in (None, "paper") and note.yref in (None, "paper"):
            self.figure.text(self.on_paper(note.x, "x"), self.on_paper(note.y, "y"), plain(note.text), **style)
            return
        x, y = (note.xref or "x").split(" "), (note.yref or "y").split(" ")
        axes = self.flat_panel(x[0] if x[0] != "paper" else "x", y[0] if y[0] != "paper" else "y")
        to_data, to_panel = axes.transData, axes.transAxes
        both = matplotlib.transforms.blended_transform_factory(
            to_panel if x[0] == "paper" or "domain" in x else to_data,
            to_panel if y[0] == "paper" or "domain" in y else to_data,
        )
        axes.text(note.x, note.y, plain(note.text), transform=both, **style)

    def finish(self) -> None:
        for (x, y), axes in self.panels.items():
            if x != y:
                dress_axis(axes.xaxis, self.layout[axis_name(x)])
                dress_axis(axes.yaxis, self.layout[axis_name(y)])
        self.figure.suptitle(plain(self.layout.title.text), fontsize=12)
        self.legend()

    def legend(self) -> None:
        """One legend for the whole figure; hidden names stay out, and one that several traces share stands once."""
        wanted = [
            trace for trace in self.source.data if trace.name and trace.showlegend is not False and shows_name(trace)
        ]
        if self.layout.showlegend is False or not wanted or (len(wanted) == 1 and not self.layout.showlegend):
            return
        names = {plain(trace.name) for trace in wanted}
        found: dict[str, Any] = {}
        for axes in self.panels.values():
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
            self.figure.legend(list(found.values()), list(found), **style)


def draw_scatter(axes: Axes, trace: Any, colour: str) -> None:
    """Lines, points with error bars, words and bands."""
    mode = trace.mode or "lines"
    x = np.arange(len(trace.y)) if trace.x is None else trace.x
    paint = trace.line.color or (trace.marker.color if isinstance(trace.marker.color, str) else None) or colour
    style: dict[str, Any] = {"color": paints(paint), "alpha": trace.opacity, "label": plain(trace.name)}
    line = DASHES[trace.line.dash or "solid"] if "lines" in mode else "none"
    fill_band(axes, trace, x, paint)
    if "markers" in mode and trace.marker.color is not None and not isinstance(trace.marker.color, str):
        draw_coloured_points(axes, trace, x)
        style["label"] = None
    elif "markers" in mode:
        size = trace.marker.size if isinstance(trace.marker.size, int | float) else 6
        style.update(marker=SYMBOLS.get(trace.marker.symbol or "circle", "o"), markersize=size * 0.72)
    width = 2.0 if trace.line.width is None else trace.line.width
    drawn = {"linestyle": line, "linewidth": width * 0.72, "elinewidth": 1, "capsize": 2, **style}
    axes.errorbar(x, trace.y, xerr=spreads(trace.error_x), yerr=spreads(trace.error_y), **drawn)
    if "text" in mode:
        for across, up, word in zip(x, trace.y, trace.text, strict=True):
            axes.annotate(plain(word), (across, up), xytext=(3, 3), textcoords="offset points", fontsize=8)


def draw_coloured_points(axes: Axes, trace: Any, x: Any) -> None:
    """Points that each have their own colour, named or by number."""
    colours, size = trace.marker.color, trace.marker.size
    area = (np.asarray(6 if size is None else size, dtype=float) * 0.72) ** 2
    style: dict[str, Any] = {
        "s": area,
        "marker": SYMBOLS.get(trace.marker.symbol or "circle", "o"),
        "label": plain(trace.name),
    }
    if all(isinstance(one, str) for one in colours):
        axes.scatter(x, trace.y, c=[paints(one) for one in colours], **style)
    else:
        axes.scatter(x, trace.y, c=numbers(colours), cmap=colour_map(trace.marker.colorscale, False), **style)


def bar_sides(trace: Any) -> tuple[list[Any], list[Any]]:
    """What the bars stand for, and how long they are; bars without names are counted."""
    names, lengths = (trace.y, trace.x) if trace.orientation == "h" else (trace.x, trace.y)
    return list(range(len(lengths)) if names is None else names), list(lengths)


def fill_band(axes: Axes, trace: Any, x: Any, paint: str) -> None:
    """The area that a trace fills: a closed outline, or down to zero."""
    if trace.fill in (None, "none"):
        return
    colour = paints(trace.fillcolor or paint)
    style: dict[str, Any] = {"color": colour, "alpha": None if trace.fillcolor else 0.3, "linewidth": 0}
    if trace.fill == "toself":
        axes.fill(x, trace.y, **style)
    elif trace.fill == "tozeroy":
        axes.fill_between(x, trace.y, **style)
    else:
        raise DataError(f"Pictures fill toself or tozeroy; got {trace.fill!r}. Draw a band as one closed outline.")


def dress_axis(axis: Any, given: Any) -> None:
    """Title, scale, range, ticks and direction of a flat axis."""
    name = axis.axis_name
    owner = axis.axes
    if given.type == "log":
        getattr(owner, f"set_{name}scale")("log")
        # Matplotlib would write powers as formulas, and text is never one here.
        axis.set_major_formatter(matplotlib.ticker.StrMethodFormatter("{x:g}"))
        axis.set_minor_formatter(matplotlib.ticker.NullFormatter())
    axis.set_label_text(plain(given.title.text))
    if given.range is not None:
        bounds = [10**end for end in given.range] if given.type == "log" else list(given.range)
        getattr(owner, f"set_{name}lim")(bounds)
    elif given.autorange == "reversed":
        getattr(owner, f"invert_{name}axis")()
    if given.tickvals is not None:
        axis.set_ticks(given.tickvals, [plain(text) for text in given.ticktext or given.tickvals])
    elif found := re.fullmatch(r"\.(\d)%", given.tickformat or ""):
        axis.set_major_formatter(matplotlib.ticker.PercentFormatter(1.0, decimals=int(found[1])))
    if given.showticklabels is False:
        axis.set_ticklabels([])
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
    eye = scene.camera.eye
    if None not in (eye.x, eye.y, eye.z):
        axes.view_init(
            math.degrees(math.atan2(eye.z, math.hypot(eye.x, eye.y))), math.degrees(math.atan2(eye.y, eye.x))
        )


def axis_name(short: str) -> str:
    """`x2` -> `xaxis2`."""
    return f"{short[0]}axis{short[1:]}"


def spreads(error: Any) -> np.ndarray | None:
    """Lengths of error bars below and above, or none."""
    if error.array is None or error.visible is False:
        return None
    above = numbers(error.array)
    return np.stack([above if error.arrayminus is None else numbers(error.arrayminus), above])


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


def cell_text(trace: Any, row: int, column: int, value: float) -> str:
    """What stands in a cell of a heatmap: `%{text}`, `%{z}` or `%{z:.2f}`."""
    found = re.fullmatch(r"%\{(text|z)(?::(.+))?\}(.*)", trace.texttemplate)
    if not found:
        raise DataError(f"Pictures write %{{text}} or %{{z:FORMAT}} into cells; got {trace.texttemplate!r}.")
    if found[1] == "text":
        return plain(trace.text[row][column]) + found[3]
    return format(value, found[2] or "g") + found[3]


def colour_map(scale: Any, reverse: bool) -> Colormap:
    """Plotly's list of (place, colour) as a colour map."""
    pairs = scale or go.Heatmap(colorscale="cividis").colorscale
    made = LinearSegmentedColormap.from_list("scale", [(place, paints(colour)) for place, colour in pairs])
    return made.reversed() if reverse else made


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


def shows_name(trace: Any) -> bool:
    """Plotly lists lines, points and bars in its legend by themselves, coloured areas only when asked."""
    return trace.type in ("scatter", "bar")
