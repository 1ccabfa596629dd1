"""Lexicons that take a while to build, kept in the user's cache folder under a name that says what they are made of."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from rosewood.data.inflection import dictionary_version
from rosewood.durable import write_whole


def cache_folder() -> Path:
    """ROSEWOOD_CACHE, or `rosewood` in the user's cache folder."""
    if own := os.environ.get("ROSEWOOD_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rosewood"


def built_once(name: str, made_of: Iterable[str], build: Callable[[], Mapping[str, Sequence[str]]]) -> Path:
    """The JSON file of these entries; built if there is none of the same code and ingredients."""
    parts = [*made_of, dictionary_version(), *(file.read_text(encoding="utf-8") for file in _code(name))]
    path = cache_folder() / f"{name}-{sha256(json.dumps(parts).encode()).hexdigest()[:16]}.json"
    if not path.exists():
        write_whole(path, json.dumps(build(), ensure_ascii=False))
    return path


def _code(name: str) -> list[Path]:
    here = Path(__file__).parent
    return [here / "inflection.py", here / f"{name}.py"]
