"""What is minimised, one file each.

Their classes can be imported from here: `from rosewood.objectives import Consistency`.
"""

from rosewood.config.lazy_imports import components

__getattr__, __dir__ = components(__name__, "objective")
