"""The lines of `history.jsonl` as curves that are short enough to draw."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rosewood.errors import RunError

POINTS = 200
_PLACES = ("step", "epoch")


class Curve(NamedTuple):
    """A quantity by step: of a long training the means of equal shares of its steps."""

    steps: list[float]
    values: list[float]


def training_history(path: Path, points: int = POINTS) -> dict[str, Curve]:
    """Every single number that training logged, loss terms first; nothing if there is no such file.

    Steps whose value is not finite are left out, as those that the trainer skipped are.
    """
    found: dict[str, tuple[list[float], list[float]]] = {}
    for step, values in _records(path):
        for name, value in values:
            steps, numbers = found.setdefault(name, ([], []))
            steps.append(step)
            numbers.append(value)
    return {name: _thinned(*both, points) for name, both in found.items()}


def _records(path: Path) -> Iterator[tuple[float, list[tuple[str, float]]]]:
    if not path.exists():
        return
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(f"cannot read {path}: {error}. Without the file its curves are left out.") from error
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
            yield float(record["step"]), list(_numbers(record))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            if number == len(lines):  # a crash may have cut it short
                return
            raise RunError(f"line {number} of {path} is not a step of a training: {error}") from error


def _numbers(record: dict[str, Any]) -> Iterator[tuple[str, float]]:
    others = ((name, value) for name, value in record.items() if name not in _PLACES)
    for name, value in [*record.get("terms", {}).items(), *others]:
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield name, float(value)


def _thinned(steps: list[float], values: list[float], points: int) -> Curve:
    if len(steps) <= points:
        return Curve(steps, values)
    shares = zip(np.array_split(steps, points), np.array_split(values, points), strict=True)
    means = [(float(share.mean()), float(part.mean())) for share, part in shares]
    return Curve([step for step, _ in means], [value for _, value in means])
