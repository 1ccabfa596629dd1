"""Numbers over a plane: heat maps, contour lines and surfaces, and what their colours mean."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import plotly.graph_objects as go
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize

from rosewood.errors import DataError
from rosewood.figures.picture.drawing import Drawing
from rosewood.figures.picture.reading import INK, numbers, paints, places, plain


def draw_heatmap(drawing: Drawing, axes: Axes, trace: Any, colour: str) -> None:
    z = numbers(trace.z)
    x, x_names = places(trace.x, z.shape[1])
    y, y_names = places(trace.y, z.shape[0])
    mesh = axes.pcolormesh(borders(x), borders(y), z, shading="flat", **colouring(drawing, trace, z))
    axes.grid(False)
    if x_names:
        axes.set_xticks(x, x_names)
    if y_names:
        axes.set_yticks(y, y_names)
    if trace.texttemplate:
        write_cells(axes, trace, x, y, z, mesh)
    bar_of_colours(drawing, trace, mesh, axes)


def borders(places: np.ndarray) -> np.ndarray:
    """Where cells begin and end: half way to the next, and one unit wide if there is but one."""
    if len(places) == 1:
        return places[0] + np.array([-0.5, 0.5])
    middles = (places[1:] + places[:-1]) / 2
    return np.concatenate([[2 * places[0] - middles[0]], middles, [2 * places[-1] - middles[-1]]])


def write_cells(axes: Axes, trace: Any, x: np.ndarray, y: np.ndarray, z: np.ndarray, mesh: Any) -> None:
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


def cell_text(trace: Any, row: int, column: int, value: float) -> str:
    """What stands in a cell of a heatmap: `%{text}`, `%{z}` or `%{z:.2f}`."""
    found = re.fullmatch(r"%\{(text|z)(?::(.+))?\}(.*)", trace.texttemplate)
    if not found:
        raise DataError(f"Pictures write %{{text}} or %{{z:FORMAT}} into cells; got {trace.texttemplate!r}.")
    if found[1] == "text":
        return plain(trace.text[row][column]) + found[3]
    return format(value, found[2] or "g") + found[3]


def draw_contour(drawing: Drawing, axes: Axes, trace: Any, colour: str) -> None:
    z = numbers(trace.z)
    x, y = places(trace.x, z.shape[1])[0], places(trace.y, z.shape[0])[0]
    colours = colouring(drawing, trace, z)
    step = trace.contours
    levels = np.arange(step.start, step.end + step.size / 2, step.size) if step.size is not None else 15
    if step.coloring == "lines":
        mesh = axes.contour(x, y, z, levels=levels, linewidths=1, **colours)
    else:
        mesh = axes.contourf(x, y, z, levels=levels, extend="both", **colours)
        axes.contour(x, y, z, levels=mesh.levels, colors=INK, linewidths=0.4)
    if step.showlabels:
        axes.clabel(mesh, fontsize=7)
    bar_of_colours(drawing, trace, mesh, axes)


def draw_surface(drawing: Drawing, axes: Any, trace: Any, colour: str) -> None:
    z = numbers(trace.z)
    x, y = np.meshgrid(places(trace.x, z.shape[1])[0], places(trace.y, z.shape[0])[0])
    colours = colouring(drawing, trace, z, low="cmin", high="cmax")
    mesh = axes.plot_surface(x, y, z, rcount=z.shape[0], ccount=z.shape[1], linewidth=0, **colours)
    bar_of_colours(drawing, trace, mesh, axes)


def colouring(drawing: Drawing, trace: Any, z: np.ndarray, low: str = "zmin", high: str = "zmax") -> dict[str, Any]:
    """Colour map and bounds of a trace, or of the colour axis that it shares."""
    owner = trace
    if trace.coloraxis:
        owner, low, high = drawing.layout[trace.coloraxis], "cmin", "cmax"
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


def colour_map(scale: Any, reverse: bool) -> Colormap:
    """Plotly's list of (place, colour) as a colour map."""
    pairs = scale or go.Heatmap(colorscale="cividis").colorscale
    made = LinearSegmentedColormap.from_list("scale", [(place, paints(colour)) for place, colour in pairs])
    return made.reversed() if reverse else made


def bar_of_colours(drawing: Drawing, trace: Any, mesh: Any, axes: Axes) -> None:
    """What the colours mean, beside the panel, or once at the right for all panels that share a colour axis."""
    if trace.coloraxis:
        owner = drawing.layout[trace.coloraxis]
        if trace.coloraxis in drawing.explained or owner.showscale is False:
            return
        drawing.explained.add(trace.coloraxis)
        left, bottom = drawing.on_paper(owner.colorbar.x or 1.02, "x"), drawing.on_paper(0.1, "y")
        place = drawing.figure.add_axes((left, bottom, 0.012, drawing.on_paper(0.9, "y") - bottom))
        bar = drawing.figure.colorbar(mesh, cax=place)
    elif trace.showscale is False:
        return
    else:
        owner, bar = trace, drawing.figure.colorbar(mesh, ax=axes, shrink=0.8)
    bar.set_label(plain(owner.colorbar.title.text), fontsize=8)
    bar.ax.tick_params(labelsize=7)
