"""Runs: how a model was trained or averaged, enough to repeat it, and what happened in every step."""

from __future__ import annotations

import json
import math
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import AwareDatetime, Field

from rosewood.config.settings import RunSettings
from rosewood.errors import RunError
from rosewood.results.files import Count, ResultFile, ResultPart, Share, installed_versions, now

Status = Literal["running", "interrupted", "finished"]


class RunInfo(ResultFile, RunSettings):
    """What `run.json` says of a training run: its settings, and all else that it takes to repeat it."""

    recipe: str
    task: str
    fingerprints: dict[str, str]  # split -> fingerprint of its data
    examples: dict[str, Count] = {}  # split -> how many there were; none in runs of older versions
    training_arguments: dict[str, Any]
    command: str
    versions: dict[str, str] = Field(default_factory=installed_versions)
    status: Status = "running"
    started: AwareDatetime = Field(default_factory=now)
    seconds: Annotated[float, Field(ge=0)] | None = None  # known once the run has ended
    peak_memory_bytes: Count | None = None


class Metrics(ResultFile):
    """What `metrics.json` says of a finished training."""

    steps: Count
    epochs: float
    train_loss: float
    validation_accuracy: Share | None
    validation_loss: float | None
    robust_validation_accuracy: Share | None = None  # where an attack chose the epoch
    attacked_validation_accuracy: Share | None = None  # without the attack, on the examples that it was tried on
    validation_majority: Share | None = None  # the share of the most frequent label
    at_guessing: bool | None = None  # whether the validation accuracy is not above that share


class AveragedRun(ResultPart):
    """A run, or a checkpoint of another library, whose weights went into an average, and its share among them."""

    run: str
    recipe: str
    seed: int | None  # None of a checkpoint, which does not say it
    weight: Share


class Average(ResultFile):
    """What `average.json` says of a model that was not trained but averaged."""

    created: AwareDatetime = Field(default_factory=now)
    runs: list[AveragedRun]
    pretrained: str | None  # the pre-trained model that was mixed in, if one was
    pretrained_share: Share


PACKAGE = Path(__file__).parent.parent


def typed_command() -> str:
    """As it was typed: a command of Rosewood, one of its modules or a script of the user's; empty in a live session."""
    program, *words = sys.argv or [""]
    place = Path(program)
    if place.name in ("rosewood", "rosewood.exe") or place == PACKAGE / "__main__.py":
        return shlex.join(["rosewood", *words])
    if place.is_relative_to(PACKAGE):
        module = ".".join([PACKAGE.name, *place.relative_to(PACKAGE).with_suffix("").parts])
        return shlex.join(["python", "-m", module, *words])
    return shlex.join(["python", program, *words]) if place.suffix == ".py" else ""


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
    if hasattr(value, "detach"):  # a tensor; torch itself is not imported by what reads results
        return _plain(value.detach().double().tolist())
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
