"""Bars, beside or on one another."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from rosewood.errors import DataError
from rosewood.figures.picture.drawing import Drawing
from rosewood.figures.picture.reading import INK, paints, plain, spreads


def draw_bar(drawing: Drawing, axes: Axes, trace: Any, colour: str) -> None:
    flat = trace.orientation == "h"
    names, values = bar_sides(trace)
    places, width, base = bar_places(drawing, trace, names)
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
    known = bar_names(drawing, trace)
    if all(isinstance(name, str) for name in known):
        (axes.set_yticks if flat else axes.set_xticks)(range(len(known)), [plain(name) for name in known])


def fellow_bars(drawing: Drawing, trace: Any) -> list[Any]:
    """The bar traces of a panel, in their order."""
    panel = (trace.xaxis, trace.yaxis)
    return [other for other in drawing.source.data if other.type == "bar" and (other.xaxis, other.yaxis) == panel]


def bar_names(drawing: Drawing, trace: Any) -> list[Any]:
    """What the bars of a panel stand for, in the order of first mention."""
    return list(dict.fromkeys(name for other in fellow_bars(drawing, trace) for name in bar_sides(other)[0]))


def bar_places(drawing: Drawing, trace: Any, names: list[Any]) -> tuple[np.ndarray, float, np.ndarray]:
    """Where the bars of a trace stand, how wide they are and where they begin: beside or on their fellows."""
    fellows, known = fellow_bars(drawing, trace), bar_names(drawing, trace)
    worded = all(isinstance(name, str) for name in known)
    middle = np.array([known.index(name) if worded else name for name in names], dtype=float)
    before = next(place for place, other in enumerate(fellows) if other is trace)
    mode = drawing.layout.barmode or "group"
    if mode == "group":
        width = 0.8 / len(fellows)
        return middle + (before - (len(fellows) - 1) / 2) * width, width, np.zeros(len(names))
    if mode not in ("stack", "overlay"):
        raise DataError(f"Pictures draw bars in mode group, stack or overlay; got {mode!r}. Save as .html or .json.")
    base = np.zeros(len(names))
    for other in fellows[:before] if mode == "stack" else ():
        heights = dict(zip(*bar_sides(other), strict=True))
        base += [heights.get(name, 0.0) for name in names]
    return middle, 0.8, base


def bar_sides(trace: Any) -> tuple[list[Any], list[Any]]:
    """What the bars stand for, and how long they are; bars without names are counted."""
    names, lengths = (trace.y, trace.x) if trace.orientation == "h" else (trace.x, trace.y)
    return list(range(len(lengths)) if names is None else names), list(lengths)
