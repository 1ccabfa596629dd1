"""Settings of an attack that the command line writes as a text: constraints, and which edits keep the meaning."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field

from rosewood.errors import RunError

FIRST = "value"
"""Means the first setting of a constraint, whatever that is called."""


def constraints_in(given: Any) -> Any:
    """Constraints by name, from texts such as `similarity=0.8,to=last` or from constraints; a mapping stays so."""
    if not isinstance(given, str | list | tuple):
        return given
    found: dict[str, Any] = {}
    for each in [given] if isinstance(given, str) else given:
        if isinstance(each, str) or not hasattr(each, "name"):
            name, settings = _constraint_in(str(each))
        else:
            name, settings = each.name, asdict(each)
        if name in found:
            raise RunError(f"the constraint {name} is there more than once: once is enough")
        found[name] = settings
    return found


def _constraint_in(text: str) -> tuple[str, Any]:
    """A name, with the value of the first setting, and others by their names: NAME=VALUE,SETTING=VALUE."""
    named, *others = text.split(",")
    name, equals, value = named.partition("=")
    pairs = [(FIRST, "=", value)] * bool(equals) + [each.partition("=") for each in others]
    if not name.strip() or not all(key.strip() and sign and each.strip() for key, sign, each in pairs):
        raise RunError(
            f"a constraint is a name and its settings, such as words_share=0.2 or similarity=0.8,to=last; got {text!r}"
        )
    return name.strip(), {key.strip(): plain(each) for key, _, each in pairs} or None


def constraint_text(name: str, settings: Any) -> str:
    """A constraint as `--constraint` takes it."""
    if not isinstance(settings, dict):
        return name if settings is None else f"{name}={_written(settings)}"
    first = f"{name}={_written(settings[FIRST])}" if FIRST in settings else name
    return ",".join([first, *(f"{key}={_written(each)}" for key, each in settings.items() if key != FIRST)])


class MeaningFilter(BaseModel):
    """What the edit of a broken example must satisfy to count as one that keeps the meaning; none: no condition."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    words: Annotated[float, Field(gt=0, le=1)] | None = None
    """Share of the words that changed, at most."""
    similarity: Annotated[float, Field(ge=-1, le=1)] | None = None
    """Cosine of the sentence vectors of both texts, at least."""
    fluency: Annotated[float, Field(gt=0)] | None = None
    """How many times the perplexity of a token may be that of the original."""
    antonyms: bool = True
    """Whether a known antonym may replace a word."""

    def __str__(self) -> str:
        """As `--meaning-filter` takes it."""
        bounds = [f"{name}={value:g}" for name, value in self if name != "antonyms" and value is not None]
        return ",".join([*bounds, *([] if self.antonyms else ["antonyms=no"])]) or "none"


def meaning_filter_in(given: Any) -> Any:
    """What --meaning-filter says, such as `words=0.3,antonyms=no`, or `none`. Anything but text stays as it is."""
    if not isinstance(given, str):
        return given
    if given.strip() == "none":
        return {}
    pairs = [each.partition("=") for each in given.split(",")]
    if not all(key.strip() and sign and each.strip() for key, sign, each in pairs):
        raise RunError(
            "--meaning-filter is none, or conditions of an edit, such as words=0.3,similarity=0.8,fluency=2,antonyms=no"
            f"; got {given!r}"
        )
    return {key.strip(): plain(each) for key, _, each in pairs}


def plain(text: str) -> Any:
    """A value as YAML has it; what is no YAML is a text."""
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):  # ValueError: a date such as 2024-99-99
        return text


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
