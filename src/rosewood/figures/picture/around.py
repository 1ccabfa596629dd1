"""What stands around the traces: lines across, notes and the legend."""

from __future__ import annotations

from typing import Any

from matplotlib.transforms import blended_transform_factory

from rosewood.errors import DataError
from rosewood.figures.picture.drawing import Drawing
from rosewood.figures.picture.reading import DASHES, INK, paints, plain


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
