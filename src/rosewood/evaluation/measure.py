"""The figures of one set, from the logits of its examples, and their means over the sets of a suite.

Beside accuracy and calibration there is the accuracy in groups of examples, which a good mean can hide, and precision,
recall and F1 of each label.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import regex
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax
from sklearn.metrics import confusion_matrix

from rosewood.errors import DataError
from rosewood.evaluation import metrics
from rosewood.evaluation.metrics import (
    FOLDS,
    best_temperature,
    expected_calibration_error,
    held_out_ece,
    reliability,
)
from rosewood.evaluation.sets import EvaluationPlan, LoadedSet
from rosewood.results import (
    AnomalyResult,
    ClassResult,
    GroupResult,
    Mean,
    MissingSet,
    Role,
    SetResult,
)
from rosewood.results.evaluation import majority_share
from rosewood.tensors.statistics import wilson_interval
from rosewood.words.text import WORD

Ints = NDArray[np.int64]


class Measured(NamedTuple):
    """The figures of a set, and of each example the predicted label (of the set) and its groups."""

    result: SetResult
    predicted: Ints
    groups: Mapping[str, Sequence[str]]


def measure(
    loaded: LoadedSet, logits: ArrayLike, plan: EvaluationPlan, frequency: Mapping[str, int] | None, seed: int
) -> Measured:
    """Accuracy, calibration and groups of a set; `logits` are in the order of the plan's labels.

    Where a label of the set merges several of the plan's, a prediction of any of them counts for it (as in RoAST and
    HANS), and its probability is the sum of theirs. Calibration judges the same predictions as accuracy does, by the
    probability of the predicted label, and a temperature divides the logits before anything is merged.
    """
    planned, truth = loaded.planned, np.asarray(loaded.labels)
    members = [plan.members(label) for label in planned.labels]
    predicted = metrics.predicted_labels(logits, members)
    right = predicted == truth
    probabilities = metrics.merged(softmax(np.asarray(logits, dtype=np.float64), axis=1), members)
    kinds = group_labels(loaded.rows, loaded.labels, planned.labels, frequency, loaded.columns)
    single = np.eye(len(planned.labels), dtype=bool)
    figures = by_class(single[truth], single[predicted], planned.labels)
    result = _result(
        loaded,
        right,
        kinds,
        figures,
        confusion=confusion(truth, predicted, len(planned.labels)),
        ece=expected_calibration_error(probabilities, truth, predicted=predicted),
        brier=metrics.brier(probabilities, truth),
        nll=metrics.negative_log_likelihood(probabilities, truth),
        held_out_ece=held_out_ece(logits, truth, seed, members=members) if len(truth) >= FOLDS else None,
        temperature=best_temperature(logits, truth, members),
        reliability=reliability(probabilities, truth, predicted=predicted),
    )
    return Measured(result, predicted, kinds)


def measure_several(loaded: LoadedSet, logits: ArrayLike, frequency: Mapping[str, int] | None, seed: int) -> Measured:
    """The same of a set whose texts may have several labels: a label is predicted where its logit is above 0.

    Accuracy is that of whole texts; calibration is that of the answers to each label of each text.
    """
    planned, scores = loaded.planned, np.asarray(logits, dtype=np.float64)
    truth = np.asarray(loaded.labels) > 0.5
    predicted = scores > 0
    right = (predicted == truth).all(axis=1)
    # Yes and no as two classes of an answer: softmax(0, z) is sigmoid(z).
    answers = np.stack([np.zeros(scores.size), scores.ravel()], axis=1)
    yes, chances = truth.ravel().astype(np.int64), softmax(answers, axis=1)
    kinds = group_labels(loaded.rows, None, planned.labels, frequency, loaded.columns)
    figures = by_class(truth, predicted, planned.labels)
    result = _result(
        loaded,
        right,
        kinds,
        figures,
        micro_f1=figures.micro_f1,
        majority=majority_share(map(tuple, truth.tolist())),
        ece=expected_calibration_error(chances, yes),
        brier=metrics.brier(chances, yes),
        nll=metrics.negative_log_likelihood(chances, yes),
        held_out_ece=held_out_ece(answers, yes, seed) if len(yes) >= FOLDS else None,
        temperature=best_temperature(answers, yes),
        reliability=reliability(chances, yes),
    )
    return Measured(result, predicted.astype(np.int64), kinds)


def _result(
    loaded: LoadedSet, right: NDArray[np.bool_], kinds: Mapping[str, Sequence[str]], figures: ByClass, **more: Any
) -> SetResult:
    """What all sets have, whatever their labels are."""
    planned, groups = loaded.planned, by_group(right, kinds)
    return SetResult(
        name=planned.name,
        role=planned.role,
        examples=len(right),
        accuracy=float(right.mean()),
        interval=wilson_interval(int(right.sum()), len(right)),
        groups=groups,
        worst=worst(groups),
        classes=figures.classes,
        macro_f1=figures.macro_f1,
        noise=planned.noise,
        counted=planned.counted,
        source=loaded.source,
        data=loaded.fingerprint,
        max_length=loaded.max_length,
        note=planned.note,
        **more,
    )


ROLES: tuple[Role, ...] = ("clean", "shift", "adversarial", "noise")
MEASURED: tuple[Role, ...] = ("clean", "shift", "adversarial")
"""The roles whose sets count in the mean calibration error, as in RoAST."""
DETECTION = "max_softmax"
"""The score of RoAST's AUROC."""


def means(
    results: Sequence[SetResult], anomalies: Sequence[AnomalyResult], missing: Sequence[MissingSet]
) -> list[Mean]:
    """Accuracy by role, calibration error, and AUROC; a mean over no set is left out."""
    counted = [each for each in results if each.counted]
    found = [_accuracy(role, [each for each in counted if each.role == role], missing) for role in ROLES]
    measured = [each for each in counted if each.role in MEASURED]
    scaled = {each.name: each.held_out_ece for each in measured if each.held_out_ece is not None}
    found.append(_mean("ece", {each.name: each.ece for each in measured}, missing, MEASURED))
    found.append(_mean("held_out_ece", scaled, [*missing, *_too_few(measured)], MEASURED))
    scores = dict.fromkeys(each.score for each in anomalies)
    for score in scores:
        values = {each.name: each.auroc for each in anomalies if each.score == score}
        name = "auroc" if score == DETECTION else f"auroc_{score}"
        found.append(_mean(name, values, missing, ["anomaly"]))
    return [each for each in found if each is not None]


def mean_interval(sets: Sequence[SetResult]) -> tuple[float, float]:
    """The 95 % interval of an unweighted mean of accuracies, from their own intervals.

    Sets of different examples err independently; noises share their examples and may err together.
    """
    together = any(each.noise for each in sets)
    return interval_of_mean([each.accuracy for each in sets], [each.interval for each in sets], together)


def interval_of_mean(
    values: Sequence[float], intervals: Sequence[tuple[float, float]], together: bool = False
) -> tuple[float, float]:
    """The interval of an unweighted mean of shares.

    Where they err independently, distances to the ends add in squares (Zou and Donner's MOVER). Where they may err
    together, the ends are averaged, which is never too narrow.
    """
    below, above = np.abs(np.array(intervals).T - np.array(values))
    joined = np.mean if together else lambda far: np.sqrt((far**2).sum()) / len(far)
    middle = float(np.mean(values))
    return max(0.0, middle - float(joined(below))), min(1.0, middle + float(joined(above)))


def _accuracy(role: Role, sets: Sequence[SetResult], missing: Sequence[MissingSet]) -> Mean | None:
    mean = _mean(role, {each.name: each.accuracy for each in sets}, missing, [role])
    return mean and mean.model_copy(update={"interval": mean_interval(sets)})


def _too_few(measured: Sequence[SetResult]) -> list[MissingSet]:
    """Sets that cannot be cut into folds lack in the mean of what is measured on folds."""
    reason = f"the held-out calibration error needs at least {FOLDS} examples"
    return [MissingSet(name=each.name, role=each.role, reason=reason) for each in measured if each.held_out_ece is None]


def _mean(name: str, values: Mapping[str, float], missing: Sequence[MissingSet], roles: Sequence[Role]) -> Mean | None:
    if not values:
        return None
    lacking = [each.name for each in missing if each.role in roles and each.counted]
    return Mean(name=name, value=float(np.mean(list(values.values()))), sets=list(values), missing=lacking)


RARE_BELOW = 5
"""A word is rare if the training texts have it fewer times than this."""
_LENGTH_BANDS = (5, 10, 20, 50, 200)
_NEGATIONS = {
    *("no", "not", "never", "none", "nobody", "nothing", "nowhere", "neither", "nor", "without", "cannot", "no-one"),
    *("aint", "arent", "cant", "couldnt", "didnt", "doesnt", "dont", "hadnt", "hasnt", "havent", "isnt", "shouldnt"),
    *("wasnt", "werent", "wont", "wouldnt"),
}


def words_of(text: str) -> list[str]:
    """The words of a text as they are counted: without case, and with straight apostrophes."""
    return regex.findall(WORD, text.casefold().replace("’", "'"))


def word_frequency(texts: Iterable[str]) -> Counter[str]:
    """How often each word occurs in the training texts."""
    return Counter(word for text in texts for word in words_of(text))


def group_labels(
    texts: Sequence[tuple[str, ...]],
    labels: Sequence[int] | None,
    names: Sequence[str],
    frequency: Mapping[str, int] | None,
    columns: Mapping[str, Sequence[Any]] | None = None,
) -> dict[str, list[str]]:
    """For every kind of grouping, the group of each example.

    class: the name of its label; not where there are no single labels.
    length: its number of words, both texts of a pair together, in fixed bands that mean the same in every set.
    negation: whether it has an English word of negation; of a pair, in which of its texts.
    rare words: the share of its words that are rare in the training texts; needs their `frequency`.
    Every further column of the data is a grouping by its values.
    """
    words = [[words_of(text) for text in each] for each in texts]
    together = [[word for text in each for word in text] for each in words]
    kinds: dict[str, list[str]] = {
        **({} if labels is None else {"class": [names[label] for label in labels]}),
        "length": [_length(each) for each in together],
        "negation": [_negation(each) for each in words],
    }
    if frequency is not None:
        kinds["rare words"] = [_rarity(each, frequency) for each in together]
    for column, values in (columns or {}).items():
        if column in (*kinds, "class"):
            raise DataError(f"the column {column!r} has the name of a built-in grouping: rename the column.")
        kinds[column] = ["(none)" if value is None else str(value) for value in values]
    for kind, groups in kinds.items():
        _check_length(kind, groups, len(texts))
    return kinds


def by_group(correct: ArrayLike, groups: Mapping[str, Sequence[str]]) -> list[GroupResult]:
    """The accuracy, with its 95 % Wilson interval, on every group of every kind; groups in natural order.

    `correct` has one truth value for each example.
    """
    right = np.asarray(correct, dtype=bool)
    found = []
    for kind, names in groups.items():
        _check_length(kind, names, len(right))
        examples = Counter(names)
        hits = Counter(name for name, hit in zip(names, right, strict=True) if hit)
        for group in sorted(examples, key=_natural):
            size, right_ones = examples[group], hits[group]
            accuracy, interval = right_ones / size, wilson_interval(right_ones, size)
            found.append(GroupResult(kind=kind, group=group, examples=size, accuracy=accuracy, interval=interval))
    return found


def worst(groups: Sequence[GroupResult], at_least: int = 20) -> GroupResult | None:
    """The group with the lowest accuracy, the first of equal ones, among those with enough examples to say so."""
    return min((group for group in groups if group.examples >= at_least), key=lambda each: each.accuracy, default=None)


def _length(words: Sequence[str]) -> str:
    low = 0
    for high in _LENGTH_BANDS:
        if len(words) <= high:
            return f"{low} to {high} words"
        low = high + 1
    return f"over {_LENGTH_BANDS[-1]} words"


def _negation(texts: Sequence[Sequence[str]]) -> str:
    negated = [any(map(_negates, words)) for words in texts]
    if not any(negated):
        return "no negation"
    if len(texts) == 1:
        return "negation"
    if all(negated):
        return "negation in both texts"
    return "negation in the first text" if negated[0] else "negation in the second text"


def _negates(word: str) -> bool:
    return word in _NEGATIONS or word.endswith("n't")


def _rarity(words: Sequence[str], frequency: Mapping[str, int]) -> str:
    rare = sum(frequency.get(word, 0) < RARE_BELOW for word in words)
    if not rare:
        return "none"
    return "up to 20 %" if 5 * rare <= len(words) else "over 20 %"


def _check_length(kind: str, groups: Sequence[str], examples: int) -> None:
    if len(groups) != examples:
        raise DataError(f"expected one group of the kind {kind!r} per example; got {len(groups)} for {examples}.")


def _natural(name: str) -> list[str | int]:
    # Numbers sort by value: "6 to 10 words" before "11 to 20 words". Odd places hold numbers, even ones text.
    return [int(part) if part.isdecimal() else part for part in regex.split(r"(\d+)", name)]


class ByClass(NamedTuple):
    """The figures of all labels of a set."""

    classes: list[ClassResult]
    macro_f1: float | None
    micro_f1: float | None


def by_class(truth: ArrayLike, predicted: ArrayLike, names: Sequence[str]) -> ByClass:
    """From which labels each example has and which it is given, both `(examples, labels)` of truth values.

    A label that neither occurs nor is predicted has no F1 and is not in the mean, as in scikit-learn.
    """
    has, given = np.asarray(truth, dtype=bool), np.asarray(predicted, dtype=bool)
    examples, answers, hits = has.sum(axis=0), given.sum(axis=0), (has & given).sum(axis=0)
    classes = [
        ClassResult(
            label=name,
            examples=int(examples[i]),
            predicted=int(answers[i]),
            precision=_share(hits[i], answers[i]),
            recall=_share(hits[i], examples[i]),
            f1=_share(2 * hits[i], examples[i] + answers[i]),
        )
        for i, name in enumerate(names)
    ]
    found = [each.f1 for each in classes if each.f1 is not None]
    macro = float(np.mean(found)) if found else None
    return ByClass(classes, macro, _share(2 * hits.sum(), examples.sum() + answers.sum()))


def confusion(truth: ArrayLike, predicted: ArrayLike, labels: int) -> list[list[int]]:
    """How often each label (a row) was predicted as each (a column)."""
    counts: list[list[int]] = confusion_matrix(truth, predicted, labels=range(labels)).tolist()
    return counts


def _share(part: int, whole: int) -> float | None:
    return float(part / whole) if whole else None
