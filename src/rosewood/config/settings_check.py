"""Whether the settings of a component have the types and ranges that its dataclass declares."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from functools import cache
from typing import Any, Required, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError
from typing_extensions import TypedDict  # that of typing is not pydantic's before Python 3.12

from rosewood.errors import closest

LARGEST_INTEGER, LARGEST_FLOAT = 2**31 - 1, 3.4e38


def checked_settings(component: type, settings: Mapping[str, Any]) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """The settings, converted to the declared types, and what is wrong with any: its name, and why.

    A list becomes the tuple, and a whole number the float, that is declared.
    """
    try:
        values = dict(_declared(component).validate_python(dict(settings)))
    except ValidationError as error:
        known = [field.name for field in fields(component)]
        return {}, [(str(detail["loc"][0]), _described(detail, known)) for detail in error.errors()]
    return values, list(_too_large(values))


def _too_large(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The numbers that a tensor of 32 bits cannot hold; infinity, where it may be declared, can be."""
    for name, value in values.items():
        bound = LARGEST_INTEGER if isinstance(value, int) else LARGEST_FLOAT
        if isinstance(value, int | float) and bound < abs(value) < math.inf:
            yield name, f"expected a number of at most {bound:,}, got {value}"


@cache
def _declared(component: type) -> TypeAdapter[Any]:
    hints = get_type_hints(component, include_extras=True)
    types = {field.name: hints[field.name] for field in fields(component)}
    needed = [field.name for field in fields(component) if field.default is field.default_factory is MISSING]
    declared = TypedDict(component.__name__, types | {name: Required[types[name]] for name in needed}, total=False)  # type: ignore[misc]
    declared.__pydantic_config__ = ConfigDict(extra="forbid", arbitrary_types_allowed=True)  # type: ignore[attr-defined]
    return TypeAdapter(declared)


def _described(detail: Any, known: list[str]) -> str:
    if detail["type"] == "extra_forbidden":
        if not known:
            return "this component has no settings; choose another one first"
        return f"no such setting; {closest(str(detail['loc'][0]), known)}"
    return f"{detail['msg'][0].lower()}{detail['msg'][1:]}, got {detail['input']!r}"
