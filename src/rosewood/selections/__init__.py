"""Which parameters may move in a step, one file each.

Their classes can be imported from here: `from rosewood.selections import Rose`.
"""

from rosewood.config.registry import components

__getattr__, __dir__ = components(__name__, "selection")
