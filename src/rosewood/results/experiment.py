"""Experiments and hardenings: what was tried, what it came to, and what was decided."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, Field

from rosewood.results.attack import Forwards
from rosewood.results.evaluation import Evaluation
from rosewood.results.files import Count, ResultFile, ResultPart, Share, installed_versions, now


class Moment(ResultFile):
    """What a run was like when some of its optimiser steps were done."""

    step: Count
    validation_accuracy: Share
    distance: float | None  # |theta - theta0| / |theta0| over the encoder; None with a LoRA adapter
    step_seconds: float | None  # median over the steps since the moment before; None if there were none
    evaluation: Evaluation


class CellResult(ResultFile):
    """What `result.json` says of a finished cell of an experiment."""

    fingerprint: str  # of everything that decides the figures
    label: str  # what the experiment calls the recipe
    task: str
    model: str
    seed: int
    steps: Count
    validation_accuracy: Share | None
    training_seconds: Annotated[float, Field(ge=0)] | None
    data: dict[str, str]  # split -> fingerprint of what was trained on
    evaluation: Evaluation
    moments: list[Moment] = []  # in the order of training, the end included; none unless they were asked for
    inconsistency: dict[Count, Share] = {}  # first steps -> predictions that differed between two dropout passes
    versions: dict[str, str] = Field(default_factory=installed_versions)


CellState = Literal["waiting", "running", "interrupted", "failed", "finished"]


class ComparedCell(ResultPart):
    """A cell of an experiment, and how far it is."""

    name: str  # of its folder
    label: str
    task: str
    model: str
    seed: int
    state: CellState
    error: str | None = None


class ComparedFigure(ResultPart):
    """A figure of one recipe over its seeds, against the baseline and against a paper."""

    model: str
    on: str  # the suite or the task that the model was evaluated on
    label: str
    figure: str
    values: dict[int, float]  # seed -> value, as a share; none of what is of a recipe as a whole, such as its rank
    mean: float
    deviation: float | None  # of the sample; None for a single seed
    interval: tuple[float, float] | None  # 95 %, of the mean of three seeds or more (Student's t), or of the single run
    p: Share | None = None  # Welch's one-tailed t-test that it is better than the baseline
    p_adjusted: Share | None = None  # by Holm's method, for all tests of its family: mean and drop, or the others
    published: float | None = None  # as a share
    guessing: list[int] = []  # seeds whose model is at guessing: see rosewood.results.evaluation


class MatchedMoment(ResultPart):
    """The first moment of a cell at which it reaches the validation accuracy that all recipes end with or exceed."""

    model: str
    task: str
    label: str
    seed: int
    level: Share  # the lowest of the recipes' final validation accuracies, for this model, task and seed
    step: Count
    steps: Count  # of the whole training
    validation_accuracy: Share


class Comparison(ResultFile):
    """What `results.json` says of an experiment: nothing in it depends on when, or in how many goes, it was run."""

    experiment: str
    baseline: str | None
    figures: list[ComparedFigure]
    cells: list[ComparedCell]
    matched: list[MatchedMoment] = []
    matched_figures: list[ComparedFigure] = []  # of the runs as they were at these moments


Seconds = Annotated[float, Field(ge=0)]
Interval = tuple[Share, Share]
HARDENING = "harden.json"
START = "start"
"""The candidate of a hardening that is the model as it was."""


class CandidateFigures(ResultFile):
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
    role: Literal["clean", "threat", "lexicon", "noise", "calibration"]  # lexicon: a threat with words not encoded


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
    tried: list[CandidateFigures] = []  # each candidate as it was measured last, the start first
    winner: str | None = None  # on held-out rows
    test_rows: Count | None = None  # that are attacked
    changes: list[Change] = []  # on test rows
    outcome: Literal["hardened", "unchanged"] | None = None
    sentence: str = ""
    reproduce: str = ""  # the command that trains the winner again

    def last(self, candidate: str) -> CandidateFigures:
        """How a candidate was measured last."""
        return next(each for each in self.tried if each.candidate == candidate)

    def with_measured(self, found: CandidateFigures) -> dict[str, Any]:
        """The update that puts a new measurement in the place of the candidate's last one."""
        names = [each.candidate for each in self.tried]
        if found.candidate not in names:
            return {"tried": [*self.tried, found]}
        return {"tried": [found if each.candidate == found.candidate else each for each in self.tried]}
