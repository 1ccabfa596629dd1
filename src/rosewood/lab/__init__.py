"""Analyses of runs: each file computes one, and returns it as typed results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rosewood.config.registry import on_first_use

if TYPE_CHECKING:  # for type checkers and editors; `_HOMES` has the same names
    from rosewood.lab.landscape import Interpolation, Landscape, interpolate, loss_landscape
    from rosewood.lab.losses import FixedLoss
    from rosewood.lab.sharpness import Sharpness, extreme_eigenvalues

# Imported on first use, so that one analysis does not wait for the packages of another.
_HOMES = {
    "FixedLoss": "rosewood.lab.losses",
    "Interpolation": "rosewood.lab.landscape",
    "Landscape": "rosewood.lab.landscape",
    "Sharpness": "rosewood.lab.sharpness",
    "extreme_eigenvalues": "rosewood.lab.sharpness",
    "interpolate": "rosewood.lab.landscape",
    "loss_landscape": "rosewood.lab.landscape",
}

__all__ = list(_HOMES)

__getattr__, __dir__ = on_first_use(__name__, _HOMES)
