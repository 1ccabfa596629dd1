"""Name -> component: every file of a family's folder is a component, found without touching a list.

A folder within a family's folder holds what its components share.
"""

from __future__ import annotations

import importlib
import pkgutil

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
    package = importlib.import_module(FAMILIES[family])
    return sorted(module.name for module in pkgutil.iter_modules(package.__path__) if not module.ispkg)


def component(family: str, name: str) -> type[Component]:
    """The component class of that name; an unknown name answers with the closest ones."""
    package = FAMILIES[family]
    known = component_names(family)
    if name not in known:
        raise RecipeError(f"unknown {family} {name!r}: {closest(name, known)}")
    module = importlib.import_module(f"{package}.{name}")
    own = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Component) and value.__module__ == module.__name__
    ]
    if len(own) != 1:
        raise RecipeError(f"{package}.{name} must define exactly one component, it defines {len(own)}")
    return own[0]
