"""Typed results on disk: what a run, its training and its evaluation leave behind as JSON."""

from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as package_version
from pathlib import Path
from platform import python_version
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from rosewood.durable import append_line, write_whole
from rosewood.errors import RunError

Role = Literal["clean", "shift", "adversarial", "noise", "anomaly", "reference"]
Status = Literal["running", "interrupted", "finished"]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0)]


def now() -> datetime:
    """The present moment with its time zone, to the second."""
    return datetime.now(UTC).replace(microsecond=0)


def installed_versions() -> dict[str, str]:
    """Versions of Python and of the packages that can change a result."""
    packages = ("rosewood", "torch", "transformers", "accelerate", "datasets")
    found = {"python": python_version()} | {name: package_version(name) for name in packages}
    with suppress(PackageNotFoundError):  # an extra
        found["peft"] = package_version("peft")
    return found


def write(path: Path, text: str) -> None:
    """Write a whole file, or say why that cannot be done."""
    try:
        write_whole(path, text)
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror}. Check the folder and the space left.") from error


class ResultPart(BaseModel):
    """A piece of a result: no unknown fields, and never changed."""

    # A diverged run has a loss of NaN or infinity: as strings they stay valid JSON and load again.
    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="strings")


def append(path: Path, part: ResultPart) -> None:
    """Add a line to a journal that a killed process goes on with, or say why that cannot be done."""
    try:
        append_line(path, part.model_dump_json())
    except OSError as error:
        raise RunError(
            f"cannot write {path}: {error.strerror}. Check the folder and the space left; "
            "the same command then goes on where this one ended."
        ) from error


class ResultFile(ResultPart):
    """A file with a format version; a change that old readers would misread raises `newest`."""

    newest: ClassVar[int] = 1

    version: int = 1

    def save(self, path: str | Path) -> None:
        """Write the result so that a reader sees the old file or the new one, never half of one."""
        write(Path(path), self.model_dump_json(indent=2) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a saved result, or say why this file is not one."""
        path = Path(path)
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise RunError(
                f"{path} does not exist. Expected a saved {cls.__name__}; check the path, "
                "or repeat the step that writes it."
            ) from None
        except (OSError, UnicodeDecodeError) as error:
            raise RunError(f"cannot read {path}: {error}") from error
        return cls._parse(text, path)

    @classmethod
    def _parse(cls, text: str, path: Path) -> Self:
        try:
            # The version alone first: a newer format may differ in every other field.
            found = _Version.model_validate_json(text).version
            if found > cls.newest:
                raise RunError(
                    f"{path} has format version {found}; this Rosewood reads up to {cls.newest}. "
                    "Upgrade Rosewood, or write the file again with this one."
                )
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise RunError(
                f"{path} is not a valid {cls.__name__}: {_first_problem(error)}. "
                "The file is damaged or of another kind; repeat the step that writes it."
            ) from error


class _Version(BaseModel):
    version: int


def _first_problem(error: ValidationError) -> str:
    problem = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in problem["loc"])
    return f"{place}: {problem['msg']}" if place else problem["msg"]


class Noise(ResultPart):
    """What was done to the texts of a set; strength is the share of the places where it could be done."""

    kind: str
    strength: Share
    of: str  # the set that has the texts as they were


class GroupResult(ResultPart):
    """How a model did on the examples of one group."""

    kind: str  # class, length, negation, rare words, or a column of the data
    group: str
    examples: Annotated[int, Field(gt=0)]
    accuracy: Share
    interval: tuple[Share, Share]


class ReliabilityPoint(ResultPart):
    """The examples of one confidence bin (low, high]; no means where there are none."""

    low: Share
    high: Share
    examples: Count
    confidence: Share | None
    accuracy: Share | None


class SetResult(ResultPart):
    """How a model did on one evaluation set."""

    name: str
    role: Role
    examples: Annotated[int, Field(gt=0)]
    accuracy: Share
    interval: tuple[Share, Share]  # 95 % Wilson interval of the accuracy, (low, high)
    ece: Share
    brier: float
    nll: float
    # From version 2 on.
    held_out_ece: Share | None = None  # after temperature scaling; None if there are too few examples
    temperature: float | None = None  # that would minimise the negative log likelihood on this set
    reliability: list[ReliabilityPoint] = []
    groups: list[GroupResult] = []
    worst: GroupResult | None = None  # of the groups with 20 examples or more
    noise: Noise | None = None
    counted: bool = True  # in the averages of the suite
    source: str = ""
    data: str = ""  # fingerprint of texts and labels
    max_length: Count | None = None
    note: str = ""

    @property
    def gap(self) -> float | None:
        """How far the worst group is below the mean."""
        return None if self.worst is None else self.accuracy - self.worst.accuracy


class MissingSet(ResultPart):
    """An evaluation set that could not be run, and why."""

    name: str
    role: Role
    reason: str
    counted: bool = True


class AnomalyResult(ResultPart):
    """How well one score of a model tells the texts of one set from those it was made for."""

    name: str
    inside: str  # the set that the anomalies are told from
    score: str
    examples: Annotated[int, Field(gt=0)]
    auroc: Share
    aupr: Share
    fpr_at_95_tpr: Share
    source: str
    data: str


class Mean(ResultPart):
    """An unweighted mean over sets; `missing` names those of the suite that it lacks."""

    name: str  # a role, or ece, held_out_ece, auroc
    value: Share
    sets: list[str]
    missing: list[str]
    interval: tuple[Share, Share] | None = None  # 95 %, of an accuracy


class LiveAttack(ResultPart):
    """An attack on this very model."""

    attack: str
    of: str  # the set that was attacked
    settings: dict[str, Any]
    summary: "AttackSummary"


class Evaluation(ResultFile):
    """One model on all sets of a suite or a task, with the settings that decide the figures."""

    newest: ClassVar[int] = 2

    version: int = 2
    model: str
    task: str
    created: AwareDatetime = Field(default_factory=now)
    size: int | None
    seed: int
    max_length: int | None
    typo_rate: Share | None
    sets: list[SetResult]
    missing: list[MissingSet]
    # From version 2 on.
    suite: str | None = None
    labels: dict[str, str] = {}  # label -> the model's own name for it
    checkpoint: str = ""  # fingerprint of weights and tokenizer
    anomalies: list[AnomalyResult] = []
    means: list[Mean] = []
    attacks: list[LiveAttack] = []


class Lora(ResultPart):
    """A LoRA adapter: W0 + alpha / rank B A in every target layer, with dropout before A."""

    rank: Annotated[int, Field(gt=0)]
    alpha: Annotated[int, Field(gt=0)]
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    targets: list[str] = ["all-linear"]


class RunInfo(ResultFile):
    """What `run.json` says of a training run: enough to repeat it."""

    recipe: str
    task: str
    model: str
    seed: int
    data_dir: str | None
    fingerprints: dict[str, str]  # split -> fingerprint of its data
    train_size: Count | None  # None: all there is
    validation_size: Count
    max_length: Count
    early_stopping: Count | None = None
    select_by: str | None = None  # the attack under which the best epoch is chosen; None: plain accuracy
    select_examples: Count = 100
    max_skipped_steps: Count = 10
    watch: list[Literal["masks", "drift", "inconsistency"]] = []  # see `rosewood.watched`
    watch_every: Annotated[int, Field(gt=0)] = 10
    lora: Lora | None = None  # None: every weight is trained
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


class AveragedRun(ResultPart):
    """A run whose weights went into an average, and its share among the runs."""

    run: str
    recipe: str
    seed: int
    weight: Share


class Average(ResultFile):
    """What `average.json` says of a model that was not trained but averaged."""

    created: AwareDatetime = Field(default_factory=now)
    runs: list[AveragedRun]
    pretrained: str | None  # the pre-trained model that was mixed in, if one was
    pretrained_share: Share


AttackStatus = Literal["wrong", "broken", "robust", "out_of_queries", "out_of_time"]


class ChangedWord(ResultPart):
    """A word that an attack replaced; `position` counts the words of the attacked text from 0."""

    position: Count
    before: str
    after: str  # empty: left out


class AttackedExample(ResultPart):
    """What an attack did to one example.

    `wrong`: the model was wrong before, so nothing was tried. `broken`: it is wrong on `adversarial`. `robust`: the
    search came to its end without success. `out_of_queries`, `out_of_time`: it was cut off before that.
    """

    row: Count  # in the data that were attacked
    status: AttackStatus
    label: Count
    texts: dict[str, str]  # field -> text as it was
    prediction: Count
    probabilities: list[Share]
    adversarial: str | None = None  # the attacked field's text, where the model is wrong on it
    adversarial_prediction: Count | None = None
    adversarial_probabilities: list[Share] | None = None
    words: Count = 0  # of the attacked field, as far as the model sees it
    changes: list[ChangedWord] = []
    aligned: list[tuple[str, str]] = []
    """The attacked field in pieces, words and what stands between them, before and after: joined, the two texts."""
    similarity: float | None = None  # cosine of the sentence vectors of both texts, where there was an encoder
    queries: Count  # texts that the model scored, the original included; repeats are answered from memory


class AttackSummary(ResultPart):
    """The figures of an attack.

    Robust accuracy is the share of examples that are right and stay so. An example that outlasts the query budget is
    unbroken; one that ran out of time is unresolved: it counts as broken in `robust_accuracy` and as robust in
    `robust_accuracy_at_most`, and the interval goes from the low end of the one to the high end of the other.
    """

    examples: Annotated[int, Field(gt=0)]
    left_out: Count  # not begun when time was up; examples are taken in random order, so the others are a fair sample
    counts: dict[AttackStatus, Count]
    clean_accuracy: Share
    clean_interval: tuple[Share, Share]
    robust_accuracy: Share
    robust_accuracy_at_most: Share
    robust_interval: tuple[Share, Share]  # 95 % Wilson
    success_rate: Share | None  # broken among the resolved that were right; None if there are none
    changed_words: Share | None  # mean share of words changed in broken examples
    similarity: float | None = None  # mean cosine of broken examples to their originals, where there was an encoder
    mean_queries: float | None  # over the examples that were attacked


class AttackReport(ResultFile):
    """What `attack.json` says of one attack on one model: the figures, with the settings that decide them."""

    model: str
    task: str | None = None
    split: str | None = None
    data: str  # fingerprint of the texts and labels that were attacked
    attack: str
    settings: dict[str, Any]
    lexicon: str | None  # fingerprint
    language_model: str | None = None
    encoder: str | None = None
    field: str  # the text that was attacked
    seed: int
    max_length: Count
    max_queries: Count | None
    max_seconds: float | None
    fingerprint: str  # of all of the above and the model's weights: what resumes must share
    versions: dict[str, str] = Field(default_factory=installed_versions)
    created: AwareDatetime = Field(default_factory=now)
    seconds: Annotated[float, Field(ge=0)]
    summary: AttackSummary


class AttackResult(AttackReport):
    """A report, and what was done to each example."""

    examples: list[AttackedExample]


class FinishedBlock(ResultPart):
    """A line of an attack's journal: some examples that ran together, and the seconds since the search began."""

    fingerprint: str
    number: Count
    seconds: Annotated[float, Field(ge=0)]
    examples: list[AttackedExample]


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
    values: dict[int, float]  # seed -> value, as a share
    mean: float
    deviation: float | None  # of the sample; None for a single seed
    interval: tuple[float, float] | None  # 95 %, of the mean over seeds (Student's t), or of the single run (Wilson)
    p: Share | None = None  # Welch's one-tailed t-test that it is better than the baseline
    p_adjusted: Share | None = None  # by Holm's method, for all tests of its table
    published: float | None = None  # as a share


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
