"""Runs: how a model was trained or averaged, enough to repeat it."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, Field

from rosewood.config.settings import RunSettings
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
    """As it was typed: a command of Rosewood, one of its modules or somebody's script; empty in a live session."""
    program, *words = sys.argv or [""]
    place = Path(program)
    if place.name in ("rosewood", "rosewood.exe") or place == PACKAGE / "__main__.py":
        return shlex.join(["rosewood", *words])
    if place.is_relative_to(PACKAGE):
        module = ".".join([PACKAGE.name, *place.relative_to(PACKAGE).with_suffix("").parts])
        return shlex.join(["python", "-m", module, *words])
    return shlex.join(["python", program, *words]) if place.suffix == ".py" else ""
