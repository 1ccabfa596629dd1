"""What happened in every step of a training: written one JSON object per line, and read as curves."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rosewood.errors import RunError


class History:
    """Collects one record per optimiser step and appends them to a file, if there is one, on `flush`.

    Values stay tensors until then, so that recording never waits for the device. A resumed run drops the lines
    after the step it resumes from: the file always tells one uninterrupted story.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._waiting: list[dict[str, Any]] = []

    def rewind(self, step: int) -> None:
        """Forget every recorded step after `step`."""
        self._waiting = []
        if self.path is None or not self.path.exists():
            return
        lines = self.path.read_text(encoding="utf-8", errors="replace").splitlines()
        kept = [line for line in lines if _step_of(line, step) <= step]
        shorter = self.path.with_suffix(".tmp")
        shorter.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
        shorter.replace(self.path)

    def record(self, step: int, values: dict[str, Any]) -> None:
        self._waiting.append({"step": step} | values)

    def flush(self) -> list[dict[str, Any]]:
        """Write what is waiting and return it as plain numbers."""
        records = [{key: _plain(value) for key, value in record.items()} for record in self._waiting]
        self._waiting = []
        if self.path is not None and records:
            try:
                with self.path.open("a", encoding="utf-8") as file:
                    file.writelines(json.dumps(record) + "\n" for record in records)
            except OSError as error:
                raise RunError(
                    f"cannot write {self.path}: {error.strerror}. Check the folder and the space left; a run goes on "
                    "from its last checkpoint."
                ) from error
        return records


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        return _plain(value.detach().to(torch.float64).tolist())
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if isinstance(value, float):
        # JSON has no infinity; text keeps the line valid and the fact visible.
        return float(f"{value:.7g}") if math.isfinite(value) else str(value)
    return value


def _step_of(line: str, otherwise: int) -> int:
    """The step of a line; a damaged line, such as one cut short by a crash, counts as later than everything."""
    try:
        return int(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return otherwise + 1


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
