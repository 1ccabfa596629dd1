"""Single settings changed from outside, `--set PATH=VALUE`: read, and put into the plain data of a recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from rosewood.config import strict_yaml
from rosewood.errors import RecipeError


def parse_overrides(assignments: Sequence[str]) -> dict[str, Any]:
    """`["selection.keep_quantile=0.7"]` as a mapping; values are read as YAML."""
    overrides = {}
    for assignment in assignments:
        path, sign, value = assignment.partition("=")
        if not sign or not path:
            raise RecipeError(f"--set expects PATH=VALUE, such as selection.keep_quantile=0.7, got {assignment!r}")
        try:
            overrides[path.strip()] = strict_yaml.parse(value)
        except yaml.YAMLError as error:
            raise RecipeError(
                f"--set {path.strip()}: {value!r} cannot be read as YAML ({error}); quote text with special signs"
            ) from None
    return overrides


def override(plain: dict[str, Any], path: str, value: Any, defaults: Mapping[str, Any], problems: list[str]) -> None:
    """Set one entry of plain data; a name on the way becomes a mapping with that name."""
    *parents, last = path.split(".")
    node: Any = plain
    place: int | str
    for i, key in enumerate(parents):
        if isinstance(node, list):
            if not key.isdigit() or int(key) >= len(node):
                problems.append(f"--set {path}: {'.'.join(parents[:i])} has {len(node)} entries, counted from 0")
                return
            child, place = node[int(key)], int(key)
        else:
            child, place = node.get(key, defaults.get(key, {})), key
        if isinstance(child, str):
            child = {"name": child}
        if child is None or not isinstance(child, dict | list):
            where = ".".join(parents[: i + 1])
            problems.append(f"--set {path}: the recipe has no {where}: choose one first, --set {where}=NAME")
            return
        node[place] = child
        node = child
    if isinstance(node, list):
        problems.append(f"--set {path}: expected a setting of one entry, such as {'.'.join(parents)}.0.{last}")
        return
    node[last] = value
