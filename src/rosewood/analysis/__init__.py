"""Analyses of runs: each file computes one, and returns it as typed results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rosewood.first_use import on_first_use

if TYPE_CHECKING:
    from rosewood.analysis.fixed_loss import FixedLoss
    from rosewood.analysis.interpolation import Interpolation, interpolate
    from rosewood.analysis.landscape import Landscape, loss_landscape
    from rosewood.analysis.sharpness import Sharpness, extreme_eigenvalues

# Imported on first use, so that one analysis does not wait for the packages of another.
_HOMES = {
    "FixedLoss": "rosewood.analysis.fixed_loss",
    "Interpolation": "rosewood.analysis.interpolation",
    "Landscape": "rosewood.analysis.landscape",
    "Sharpness": "rosewood.analysis.sharpness",
    "extreme_eigenvalues": "rosewood.analysis.sharpness",
    "interpolate": "rosewood.analysis.interpolation",
    "loss_landscape": "rosewood.analysis.landscape",
}

__all__ = [
    "FixedLoss",
    "Interpolation",
    "Landscape",
    "Sharpness",
    "extreme_eigenvalues",
    "interpolate",
    "loss_landscape",
]

__getattr__, __dir__ = on_first_use(__name__, _HOMES)
