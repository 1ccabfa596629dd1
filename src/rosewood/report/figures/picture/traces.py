"""The traces of a picture: lines, points, bands, heat maps, contours and surfaces."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize

from rosewood.errors import DataError
from rosewood.report.figures.picture.drawing import (
    DASHES,
    INK,
    SYMBOLS,
    Drawing,
    numbers,
    paints,
    places,
    plain,
    spreads,
)


def draw_scatter(drawing: Drawing, axes: Axes, trace: Any, colour: str) -> None:
    """Lines, points with error bars, words and bands."""
    mode = trace.mode or "lines"
    x = np.arange(len(trace.y)) if trace.x is None else trace.x
    paint = trace.line.color or (trace.marker.color if isinstance(trace.marker.color, str) else None) or colour
    style: dict[str, Any] = {"color": paints(paint), "alpha": trace.opacity, "label": listed(trace)}
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


def listed(trace: Any) -> str | None:
    """The name that the legend gives to a trace, if it is to be there."""
    return None if trace.showlegend is False else plain(trace.name)


def draw_coloured_points(axes: Axes, trace: Any, x: Any) -> None:
    """Points that each have their own colour, named or by number."""
    colours, size = trace.marker.color, trace.marker.size
    area = (np.asarray(6 if size is None else size, dtype=float) * 0.72) ** 2
    style: dict[str, Any] = {
        "s": area,
        "marker": SYMBOLS.get(trace.marker.symbol or "circle", "o"),
        "label": listed(trace),
    }
    if all(isinstance(one, str) for one in colours):
        axes.scatter(x, trace.y, c=[paints(one) for one in colours], **style)
    else:
        look = trace.marker
        scale: dict[str, Any] = {"cmap": colour_map(look.colorscale, False), "vmin": look.cmin, "vmax": look.cmax}
        axes.scatter(x, trace.y, c=numbers(colours), **scale, **style)


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
    bar_of_colours(drawing, trace, mesh, axes)


def borders(places: np.ndarray) -> np.ndarray:
    """Where cells begin and end: half way to the next, and one unit wide if there is but one."""
    if len(places) == 1:
        return places[0] + np.array([-0.5, 0.5])
    middles = (places[1:] + places[:-1]) / 2
    return np.concatenate([[2 * places[0] - middles[0]], middles, [2 * places[-1] - middles[-1]]])


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
