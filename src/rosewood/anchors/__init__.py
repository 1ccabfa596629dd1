"""What ties the model to its pre-trained self, one file each.

Their classes can be imported from here: `from rosewood.anchors import Mixout`.
"""

from rosewood.config.registry import components

__getattr__, __dir__ = components(__name__, "anchor")
