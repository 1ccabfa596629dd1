"""The figures of one set, from the logits of its examples, and their means over the sets of a suite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax

from rosewood.evaluation import metrics
from rosewood.evaluation.groups import ByClass, by_class, by_group, confusion, group_labels, worst
from rosewood.evaluation.metrics import (
    FOLDS,
    best_temperature,
    expected_calibration_error,
    held_out_ece,
    reliability,
)
from rosewood.evaluation.sets import EvaluationPlan, LoadedSet
from rosewood.results import AnomalyResult, GroupResult, Mean, MissingSet, ReliabilityPoint, Role, SetResult
from rosewood.tensors.statistics import wilson_interval

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
    curve = reliability(probabilities, truth, predicted=predicted)
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
        reliability=[ReliabilityPoint(**each._asdict()) for each in curve],
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
        ece=expected_calibration_error(chances, yes),
        brier=metrics.brier(chances, yes),
        nll=metrics.negative_log_likelihood(chances, yes),
        held_out_ece=held_out_ece(answers, yes, seed) if len(yes) >= FOLDS else None,
        temperature=best_temperature(answers, yes),
        reliability=[ReliabilityPoint(**each._asdict()) for each in reliability(chances, yes)],
    )
    return Measured(result, predicted.astype(np.int64), kinds)


def _result(
    loaded: LoadedSet, right: NDArray[np.bool_], kinds: Mapping[str, Sequence[str]], figures: ByClass, **more: Any
) -> SetResult:
    """What all sets have, whatever their labels are."""
    planned, groups = loaded.planned, by_group(right, kinds)
    weakest = worst(groups)
    return SetResult(
        name=planned.name,
        role=planned.role,
        examples=len(right),
        accuracy=float(right.mean()),
        interval=wilson_interval(int(right.sum()), len(right)),
        groups=[GroupResult(**each._asdict()) for each in groups],
        worst=None if weakest is None else GroupResult(**weakest._asdict()),
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
