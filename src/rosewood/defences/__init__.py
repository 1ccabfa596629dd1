"""Defences: what is put around a classifier that is trained already, one per file.

Their classes can be imported from here: `from rosewood.defences import Smoothed`. `detection` says how well a
guarded model tells attacked texts from clean ones.
"""

from rosewood.config.registry import components

__getattr__, __dir__ = components(__name__, "defence", {"detection": "rosewood.defences.guarded"})
