"""Defences: what is put around a classifier that is trained already; one a file.

Their classes can be imported from here: `from rosewood.defences import Smoothed`.
"""

from rosewood.config.registry import components

__getattr__, __dir__ = components(__name__, "defence")
