"""Tests over all recipes: `make test-all` takes every one, `make test` those that bring something of their own.

A recipe brings its components, and the ways that they can go: settings that are words. One that brings nothing which
simpler recipes have not brought, such as a combination of two others, is slow.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from functools import cache
from typing import Any

import pytest

from rosewood.protocol import Component
from rosewood.recipe import load_recipe, recipe_names


def every_recipe(*more: str, but: Collection[str] = ()) -> list[Any]:
    """The names of all recipes, and of some variants, as parameters of a test."""
    names = [name for name in recipe_names() if name not in but]
    return [pytest.param(name, marks=[] if name in own_recipes() else pytest.mark.slow) for name in names] + list(more)


@cache
def own_recipes() -> frozenset[str]:
    """The recipes that bring something of their own."""
    brought = {name: _brought(name) for name in recipe_names()}
    known: set[Any] = set()
    chosen = ["vanilla"]
    for name in sorted(brought, key=lambda each: (len(_parts(each)), each)):
        if not brought[name] <= known:
            chosen.append(name)
        known |= brought[name]
    return frozenset(chosen)


def _brought(name: str) -> set[Any]:
    return {each for part in _parts(name) for each in [type(part), *_ways(part)]}


def _parts(name: str) -> list[Component]:
    recipe = load_recipe(name)
    return [*(part for stage in recipe.all_stages() for part in stage.components()), *recipe.perturbations()]


def _ways(part: Component) -> list[Any]:
    values = [(field.name, getattr(part, field.name)) for field in dataclasses.fields(part)]  # type: ignore[arg-type]
    return [(type(part), field, value) for field, value in values if isinstance(value, str)]
