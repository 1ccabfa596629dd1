"""Name -> component: every file of a family's folder is a component, found without touching a list.

A folder within a family's folder holds what its components share. Installed packages may have such folders too: see
`rosewood.config.packages`.
"""

from __future__ import annotations

import importlib
from pathlib import Path

from rosewood.config.packages import modules_in
from rosewood.errors import RecipeError, closest
from rosewood.protocol import Component

FAMILIES = {
    "objective": "rosewood.objectives",
    "perturbation": "rosewood.perturbations",
    "selection": "rosewood.selections",
    "anchor": "rosewood.anchors",
    "attack": "rosewood.attacks",
    "defence": "rosewood.defences",
}


def component_names(family: str) -> list[str]:
    """The names of all components of a family."""
    return sorted(_modules(family))


def component(family: str, name: str) -> type[Component]:
    """The component class of that name; an unknown name answers with the closest ones."""
    known = _modules(family)
    if name not in known:
        raise RecipeError(f"unknown {family} {name!r}: {closest(name, sorted(known))}")
    module = importlib.import_module(known[name])
    own = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Component) and value.__module__ == module.__name__
    ]
    if len(own) != 1:
        raise RecipeError(f"{known[name]} must define exactly one component, it defines {len(own)}")
    return own[0]


def _modules(family: str) -> dict[str, str]:
    package = FAMILIES[family]
    return modules_in(package, Path(__file__).parent.parent / package.rpartition(".")[2])
