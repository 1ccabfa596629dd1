"""Analyses of runs: each file computes one, and returns it as typed results."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

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


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'rosewood.analysis' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
