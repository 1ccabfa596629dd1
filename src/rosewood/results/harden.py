"""Hardenings: what was tried on held-out rows, what was decided, and what the test rows said of it."""

from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, Field

from rosewood.results.defence import Forwards
from rosewood.results.files import Count, ResultFile, ResultPart, Share, installed_versions, now

Seconds = Annotated[float, Field(ge=0)]
Interval = tuple[Share, Share]


class Measured(ResultFile):
    """A candidate on held-out rows, after one stage of the race."""

    candidate: str
    stage: Count
    steps: Count  # of training until then; 0 where nothing was trained
    right: list[bool]  # of each held-out row, without an attack
    robust: list[bool]  # of each attacked row: right, and still right under every threat
    cost: Forwards = 1.0  # passes of the network for one text

    @property
    def clean_accuracy(self) -> float:
        return sum(self.right) / len(self.right)

    @property
    def robust_accuracy(self) -> float:
        return sum(self.robust) / len(self.robust)


class Costs(ResultPart):
    """Seconds that were measured before the race, from which it was planned."""

    steps: dict[str, Seconds]  # candidate -> one optimiser step
    clean_row: Seconds
    attacked_row: Seconds  # under all threats
    begin: Seconds  # until a candidate's work starts: loading the model and the data


class Schedule(ResultPart):
    """The race as it was planned at the first start; only `Decision.cut` makes it shorter."""

    entrants: list[str]
    keep: list[Count]  # how many candidates enter each stage
    steps: dict[str, list[Count]]  # candidate -> optimiser steps at the end of each stage
    clean_rows: Count
    attacked_rows: Count
    mixtures: Count  # candidates without training that are measured at the end, at most
    test_rows: Count
    seconds: Seconds  # that all of it takes, as far as it could be known
    plain_steps: Count | None = None  # of plain fine-tuning, where a caller has fixed them with all the rest


class Decision(ResultPart):
    """Who went on after a stage, and what was left out because time was short."""

    stage: Count
    entered: list[str]
    kept: list[str]
    cut: str = ""


class Change(ResultPart):
    """A figure on test rows before and after, with the paired test between the two."""

    what: str
    examples: Count
    before: Share
    after: Share
    difference: float
    # A calibration error has neither intervals nor a test.
    before_interval: Interval | None = None
    after_interval: Interval | None = None
    interval: tuple[float, float] | None = None  # of the difference
    p: Share | None = None  # two-sided
    role: Literal["clean", "threat", "noise", "calibration"]


class Hardening(ResultFile):
    """What `harden.json` says: everything that was decided, in the order in which it was, and the end."""

    identity: str  # of all that decides the outcome: another one cannot go on here
    command: str
    model: str  # as it was given
    start: str  # the folder of the classifier that is hardened
    pretrained: str
    task: str
    threats: list[str]
    budget: Seconds
    max_clean_loss: float
    max_cost: float
    versions: dict[str, str] = Field(default_factory=installed_versions)
    started: AwareDatetime = Field(default_factory=now)
    spent: Seconds = 0.0
    plain_steps: Count | None = None  # of the plain fine-tuning, where the model was not a classifier yet
    costs: Costs | None = None
    schedule: Schedule | None = None
    planned_at: Seconds = 0.0  # what was spent before the race
    shield: str | None = None  # the defence around all candidates of the race, "" for none; until it is chosen None
    decisions: list[Decision] = []
    tried: list[Measured] = []  # each candidate as it was measured last, the start first
    winner: str | None = None  # on held-out rows
    test_rows: Count | None = None  # that are attacked
    changes: list[Change] = []  # on test rows
    outcome: Literal["hardened", "unchanged"] | None = None
    sentence: str = ""
    reproduce: str = ""  # the command that trains the winner again

    def last(self, candidate: str) -> Measured:
        """How a candidate was measured last."""
        return next(each for each in self.tried if each.candidate == candidate)

    def with_measured(self, found: Measured) -> dict[str, Any]:
        """The update that puts a new measurement in the place of the candidate's last one."""
        names = [each.candidate for each in self.tried]
        if found.candidate not in names:
            return {"tried": [*self.tried, found]}
        return {"tried": [found if each.candidate == found.candidate else each for each in self.tried]}
