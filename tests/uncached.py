"""A recipe that forgets what its teacher has said: the cache keeps that also of a step that is skipped."""

from typing import Any

from rosewood.recipe import Recipe, load_recipe


def uncached(name: str | Recipe) -> Recipe:
    """The recipe as it is, but for the caches of its anchors."""
    anchors = load_recipe(name).anchors
    overrides: dict[str, Any] = {f"anchors.{i}.cache": False for i, a in enumerate(anchors) if hasattr(a, "cache")}
    return load_recipe(name, overrides)
