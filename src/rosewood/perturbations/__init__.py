"""How the input, or the weights, are disturbed, one file each.

Their classes can be imported from here: `from rosewood.perturbations import SynonymHull`.
"""

from rosewood.config.registry import components

__getattr__, __dir__ = components(__name__, "perturbation")
