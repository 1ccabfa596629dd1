"""Analyses of runs: each file computes one, and returns it as typed results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rosewood.first_use import on_first_use

if TYPE_CHECKING:
    from rosewood.analysis.fixed_loss import FixedLoss
    from rosewood.analysis.interpolation import Interpolation, interpolate
    from rosewood.analysis.landscape import Landscape, loss_landscape
    from rosewood.analysis.sharpness import Sharpness, top_eigenvalue

# Imported on first use, so that one analysis does not wait for the packages of another.
_HOMES = {
    "FixedLoss": "rosewood.analysis.fixed_loss",
    "Interpolation": "rosewood.analysis.interpolation",
    "Landscape": "rosewood.analysis.landscape",
    "Sharpness": "rosewood.analysis.sharpness",
    "interpolate": "rosewood.analysis.interpolation",
    "loss_landscape": "rosewood.analysis.landscape",
    "top_eigenvalue": "rosewood.analysis.sharpness",
}

__all__ = [
    "FixedLoss",
    "Interpolation",
    "Landscape",
    "Sharpness",
    "interpolate",
    "loss_landscape",
    "top_eigenvalue",
]

__getattr__, __dir__ = on_first_use(__name__, _HOMES)
