"""Evaluations: how one model did on every set of a suite or task."""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AwareDatetime, Field

from rosewood.results.attack import AttackReport, AttackSummary, TestFile
from rosewood.results.defence import Forwards
from rosewood.results.files import Count, ResultFile, ResultPart, Share, now

Role = Literal["clean", "shift", "adversarial", "noise", "anomaly", "reference"]


class AppliedNoise(ResultPart):
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


class ClassResult(ResultPart):
    """How a model did on one label; a share of nothing is None."""

    label: str
    examples: Count  # that have the label
    predicted: Count  # that the model gives the label
    precision: Share | None
    recall: Share | None
    f1: Share | None


class SetResult(ResultPart):
    """How a model did on one evaluation set.

    Where a text may have several labels, a text counts as right if all of its labels are, and calibration is that of
    the single yes-or-no answers.
    """

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
    classes: list[ClassResult] = []
    macro_f1: Share | None = None  # the mean F1 of the labels that occur, in the data or in the predictions
    micro_f1: Share | None = None  # of all labels together; where a text may have several
    confusion: list[list[Count]] = []  # a row for each label, a column for each prediction; where a text has one label
    noise: AppliedNoise | None = None
    unseen: bool = False  # the noise changes no token: an uncased model reads nothing of capitals
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
    inside: str  # the set that the anomalies are compared with
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
    lexicon: str | None = None  # fingerprint
    lexicon_name: str | None = None  # as `--lexicon` takes it; None if it has no such name
    searches: int = 1
    settings: dict[str, Any]
    protocol: str | None = None
    deviations: list[str] = []
    summary: AttackSummary

    @classmethod
    def reported(cls, report: AttackReport, attack: str, of: str) -> Self:
        """What an evaluation keeps of an attack, under the names that it has there."""
        return cls(
            attack=attack,
            of=of,
            lexicon=report.lexicon,
            lexicon_name=report.lexicon_name,
            searches=report.searches,
            settings=report.settings,
            protocol=report.protocol,
            deviations=report.deviations,
            summary=report.summary,
        )


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
    multi_label: bool = False
    forwards: Forwards = 1.0  # passes of the network for one text: more than 1 where a defence is around it
    test_file: TestFile | None = None  # what was evaluated on, if it was a file of the user's own
