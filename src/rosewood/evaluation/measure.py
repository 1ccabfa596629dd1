"""The figures of one set, from the logits of its examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax

from rosewood.evaluation import metrics
from rosewood.evaluation.by_class import ByClass, by_class, confusion
from rosewood.evaluation.calibration import FOLDS, best_temperature, held_out_ece, reliability
from rosewood.evaluation.groups import by_group, group_labels, worst
from rosewood.evaluation.plan import EvaluationPlan
from rosewood.evaluation.sets import LoadedSet
from rosewood.results import GroupResult, ReliabilityPoint, SetResult
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
    """Accuracy, calibration and groups of a set; `logits` stand in the order of the plan's labels.

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
        ece=metrics.expected_calibration_error(probabilities, truth, predicted=predicted),
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
        ece=metrics.expected_calibration_error(chances, yes),
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
