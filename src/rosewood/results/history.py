"""What happened in every step: kept on the device until it is asked for, then one JSON object per line."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

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
