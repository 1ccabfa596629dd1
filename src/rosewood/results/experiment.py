"""Experiments: their cells, and what comes of comparing them."""

from typing import Annotated, Literal

from pydantic import Field

from rosewood.results.evaluation import Evaluation
from rosewood.results.files import Count, ResultFile, ResultPart, Share, installed_versions


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
    guessing: list[int] = []  # seeds whose model is at guessing: see rosewood.results.guessing


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
