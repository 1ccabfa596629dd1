"""A Plotly figure drawn by Matplotlib: pictures for papers without a browser.

It knows the traces and layout that Rosewood's figures use, and refuses the rest by name instead of leaving it out.
"""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any

import matplotlib
import plotly.graph_objects as go
from matplotlib.axes import Axes

from rosewood.errors import DataError
from rosewood.report.figures.picture.drawing import (
    INK,
    PIXELS_AN_INCH,
    Drawing,
    axis_name,
    draw_legend,
    draw_line_across,
    dress_axis,
    plain,
    write_note,
)
from rosewood.report.figures.picture.traces import draw_contour, draw_heatmap, draw_scatter, draw_surface

# No date and no random ids, so that the same figure gives the same bytes; text is text, never a formula.
SETTINGS: dict[Any, Any] = {
    "svg.hashsalt": "rosewood",
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
    "text.parse_math": False,
}
DATELESS = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
DRAWS: dict[str, Callable[[Drawing, Axes, Any, str], None]] = {
    "scatter": draw_scatter,
    "heatmap": draw_heatmap,
    "contour": draw_contour,
    "surface": draw_surface,
}


def picture(figure: go.Figure, format: str) -> bytes:
    """The bytes of the figure as png, svg or pdf."""
    with matplotlib.rc_context({**SETTINGS, "text.color": INK, "axes.labelcolor": INK}):
        sheet = drawn(figure).figure
        file = BytesIO()
        sheet.savefig(file, format=format, dpi=2 * PIXELS_AN_INCH, metadata=DATELESS[format])
    return file.getvalue()


def drawn(figure: go.Figure) -> Drawing:
    """The figure with all that belongs to it, drawn."""
    drawing = Drawing(figure)
    for place, trace in enumerate(figure.data):
        if trace.type not in DRAWS:
            known = ", ".join(DRAWS)
            raise DataError(
                f"Pictures are drawn from traces of type {known}; got {trace.type!r}. Save as .html or .json."
            )
        if trace.visible in (None, True):
            colour = drawing.colourways[place % len(drawing.colourways)]
            DRAWS[trace.type](drawing, drawing.panel(trace), trace, colour)
    for shape in figure.layout.shapes:
        draw_line_across(drawing, shape)
    for annotation in figure.layout.annotations:
        write_note(drawing, annotation)
    for (x, y), axes in drawing.panels.items():
        if x != y:  # a panel of three dimensions has been dressed when it was made
            dress_axis(axes.xaxis, figure.layout[axis_name(x)])
            dress_axis(axes.yaxis, figure.layout[axis_name(y)])
    drawing.figure.suptitle(plain(figure.layout.title.text), fontsize=12)
    draw_legend(drawing)
    return drawing
