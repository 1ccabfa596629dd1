"""Experiments: grids of runs, probes, tuning, hardening, gates, and where their cells run.

These names can be imported from here: `from rosewood.experiments import RayEngine`.
"""

from rosewood.config.registry import on_first_use

_HOMES = {
    "LocalEngine": "rosewood.experiments.engines.local",
    "RayEngine": "rosewood.experiments.engines.ray",
    "finish_cell": "rosewood.experiments.engines.worker",
    "probe": "rosewood.experiments.compare",
}
__all__ = list(_HOMES)

__getattr__, __dir__ = on_first_use(__name__, _HOMES)
