"""Titles, scales and ticks of the axes."""

from __future__ import annotations

import math
import re
from typing import Any

from matplotlib import ticker

from rosewood.figures.picture.reading import INK, plain


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
