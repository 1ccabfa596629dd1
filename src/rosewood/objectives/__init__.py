"""What is minimised, one file each.

Their classes can be imported from here: `from rosewood.objectives import Consistency`.
"""

from rosewood.config.registry import components

__getattr__, __dir__ = components(__name__, "objective")
