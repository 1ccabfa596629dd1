"""Evaluations: how one model did on every set of a suite or task, and whether it does better than guessing.

A model that answers one label whatever it reads is never misled: under noise and attack it keeps all the accuracy that
it has, and looks the most robust of all. So a model counts as robust only if it has learnt the task, that is, if it is
more accurate than the answer "the most frequent label" would be on the same examples: the whole 95 % interval of its
accuracy must lie above the share of that label. Everything that calls a model good asks here first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AwareDatetime, Field

from rosewood.results.attack import AttackReport, AttackSummary, Forwards, TestFile
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
    majority: Share | None = None  # where a text may have several labels, the share of the most frequent set of them
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


GUESSING_MARK = "‡"
GUESSING_NOTE = (
    f"{GUESSING_MARK}: at guessing: its clean accuracy is not above the share of the most frequent label (95 % "
    "interval). What it keeps under attack is not robustness."
)


def majority_share(labels: Iterable[Hashable]) -> float | None:
    """The share of the most frequent label; None where all are the same, so that every right answer is that one."""
    counts = Counter(labels)
    return max(counts.values()) / counts.total() if len(counts) > 1 else None


def at_guessing(interval: tuple[float, float], majority: float | None) -> bool:
    """Whether an accuracy with this 95 % interval is not above the share of the most frequent label."""
    return majority is not None and interval[0] <= majority


def majority_of(result: SetResult) -> float | None:
    """The share of the most frequent label of a set; None if it has one label, or does not say.

    Where a text may have several labels, it is that of the most frequent set of them: none at all, for example.
    """
    if result.majority is not None:
        return result.majority
    classes = [each.examples for each in result.groups if each.kind == "class"]
    return max(classes) / result.examples if len(classes) > 1 and sum(classes) == result.examples else None


def guessed_sets(evaluation: Evaluation) -> list[SetResult]:
    """The clean sets of an evaluation on which the model is at guessing."""
    return [each for each in evaluation.sets if each.role == "clean" and at_guessing(each.interval, majority_of(each))]


def is_guessing(evaluation: Evaluation) -> bool:
    """Whether a model is at guessing on all clean sets that can tell; what has none of them is not judged."""
    judged = [each for each in evaluation.sets if each.role == "clean" and majority_of(each) is not None]
    return bool(judged) and len(guessed_sets(evaluation)) == len(judged)


def guesses_before(summary: AttackSummary) -> bool:
    """Whether a model is at guessing on the examples of an attack, before any of them is attacked."""
    return at_guessing(summary.clean_interval, summary.majority)


def marked(name: str, guessing: bool) -> str:
    """The name of a model in a table, marked if it is at guessing."""
    return f"{name} {GUESSING_MARK}" if guessing else name


def unmarked(name: str) -> str:
    """The name as it is in a sentence."""
    return name.removesuffix(f" {GUESSING_MARK}")


def described(sets: Sequence[SetResult]) -> str:
    """The accuracies on some sets beside the shares of their most frequent labels."""
    found = []
    for each in sets:
        low, high = (f"{100 * end:.1f}" for end in each.interval)
        share = 100 * (majority_of(each) or 0.0)
        found.append(
            f"{100 * each.accuracy:.1f} % ({low} to {high}) on {each.name}, where the most frequent label is "
            f"{share:.1f} % of the examples"
        )
    return "; ".join(found)
