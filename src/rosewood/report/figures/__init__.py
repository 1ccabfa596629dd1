"""Figures: each file turns typed results into one Plotly figure; `save` writes it as page, data or picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rosewood.config.registry import on_first_use

if TYPE_CHECKING:  # for type checkers and editors; `_HOMES` has the same names
    from rosewood.report.figures.lab import loss_along_the_line, loss_contours, loss_surfaces
    from rosewood.report.figures.style import save

# Imported on first use, so that commands without figures do not wait for Plotly.
_HOMES = {
    "loss_along_the_line": "rosewood.report.figures.lab",
    "loss_contours": "rosewood.report.figures.lab",
    "loss_surfaces": "rosewood.report.figures.lab",
    "save": "rosewood.report.figures.style",
}

__all__ = list(_HOMES)

__getattr__, __dir__ = on_first_use(__name__, _HOMES)
