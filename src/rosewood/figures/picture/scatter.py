"""Lines, points, words and bands."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from rosewood.errors import DataError
from rosewood.figures.picture.drawing import Drawing
from rosewood.figures.picture.fields import colour_map
from rosewood.figures.picture.reading import DASHES, SYMBOLS, numbers, paints, plain, spreads


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
