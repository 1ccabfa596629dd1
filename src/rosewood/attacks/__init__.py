"""Attacks: searches for a few changed words that make a model wrong, one file each.

Their classes can be imported from here, `from rosewood.attacks import Genetic`, and so can what an attack of your own
is made of: `Attack`, the `Target` that it gets, the questions `probe` and `move`, and `by_importance`.
"""

from rosewood.config.registry import components

_HOMES = {
    "Attack": "rosewood.attacks.runner.attack",
    "Resources": "rosewood.attacks.runner.example",
    "Search": "rosewood.attacks.runner.example",
    "Target": "rosewood.attacks.runner.example",
    "by_importance": "rosewood.attacks.runner.example",
    "move": "rosewood.attacks.runner.example",
    "probe": "rosewood.attacks.runner.example",
}

__getattr__, __dir__ = components(__name__, "attack", _HOMES)
