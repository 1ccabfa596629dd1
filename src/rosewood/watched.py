"""What was seen while a run trained: one typed JSON object a line, in RUN/dynamics.

masks.jsonl          what the selection let through of each tensor, and the risks by which it chose
drift.jsonl          how far the encoder is from its pre-trained weights
inconsistency.jsonl  how many predictions two passes with fresh dropout disagree on
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Annotated, ClassVar, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from rosewood.errors import RunError

FOLDER = "dynamics"
Share = Annotated[float, Field(ge=0, le=1)]
Size = Annotated[float, Field(ge=0)]
ByTensor = dict[str, dict[str, Size]]  # layer -> tensor -> number


class Seen(BaseModel):
    """A recorded step; steps count from 1, so that step n is what the n-th update did."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    watch: ClassVar[str]

    step: Annotated[int, Field(ge=1)]

    @classmethod
    def path(cls, run: str | Path) -> Path:
        """Where a run keeps these records."""
        return Path(run) / FOLDER / f"{cls.watch}.jsonl"


class SeenMasks(Seen):
    """Which share of each tensor a step could move: the mean of its mask, where a factor above 1 counts as 1.

    ROSE's `first_risk` and `second_ratio`, (1 - beta1) |g| / |m|, are there in steps that read them.
    """

    watch = "masks"

    kept: dict[str, dict[str, Share]]  # layer -> tensor -> share
    first_risk: ByTensor | None = None
    second_ratio: ByTensor | None = None


class SeenDrift(Seen):
    """|theta - theta0| / |theta0| after a step, of the whole encoder and of each of its layers."""

    watch = "drift"

    encoder: Size
    layers: dict[str, Size]


class SeenInconsistency(Seen):
    """Of the predictions that a step compared, how many had another class in the other pass."""

    watch = "inconsistency"

    compared: Annotated[int, Field(ge=0)]
    differing: Annotated[int, Field(ge=0)]

    @model_validator(mode="after")
    def _no_more_than_all(self) -> Self:
        if self.differing > self.compared:
            raise ValueError(f"{self.differing} of {self.compared} predictions cannot differ")
        return self


Kind = TypeVar("Kind", bound=Seen)
WATCHED: dict[str, type[Seen]] = {kind.watch: kind for kind in (SeenMasks, SeenDrift, SeenInconsistency)}


def was_watched(run: str | Path) -> list[str]:
    """The watches that a run has records of."""
    return [name for name, kind in WATCHED.items() if kind.path(run).exists()]


def read_seen(run: str | Path, kind: type[Kind]) -> list[Kind]:
    """All records of one kind, in the order of their steps, or an error that says what is wrong."""
    path = kind.path(run)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise RunError(
            f"{run} has no record of its {kind.watch} ({path} does not exist): train with --watch {kind.watch}"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(f"cannot read {path}: {error}") from error
    records = [_parsed(line, kind, f"{path}, line {number}") for number, line in enumerate(lines, 1)]
    for before, after in pairwise(records):
        if after.step <= before.step:
            raise RunError(f"{path} is damaged: step {after.step} comes after step {before.step}. Train again.")
    if not records:
        raise RunError(f"{path} is empty: no step was recorded before the run ended. Use a smaller --watch-every.")
    return records


def _parsed(line: str, kind: type[Kind], place: str) -> Kind:
    try:
        return kind.model_validate(json.loads(line))
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in problem["loc"])
        raise RunError(f"{place} is damaged: {where}: {problem['msg']}. Train again with --watch.") from error
    except (ValueError, RecursionError) as error:
        raise RunError(f"{place} is damaged: {error}. Train again with --watch.") from error
