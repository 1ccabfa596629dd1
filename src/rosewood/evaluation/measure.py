"""The figures of one set, from the logits of its examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rosewood.evaluation import metrics
from rosewood.evaluation.calibration import FOLDS, best_temperature, held_out_ece, reliability
from rosewood.evaluation.groups import by_group, group_labels, worst
from rosewood.evaluation.plan import Plan
from rosewood.evaluation.sets import LoadedSet
from rosewood.intervals import wilson_interval
from rosewood.results import GroupResult, ReliabilityPoint, SetResult

Ints = NDArray[np.int64]


class Measured(NamedTuple):
    """The figures of a set, and of each example the predicted label (of the set) and its groups."""

    result: SetResult
    predicted: Ints
    groups: Mapping[str, Sequence[str]]


def measure(
    loaded: LoadedSet, logits: ArrayLike, plan: Plan, frequency: Mapping[str, int] | None, seed: int
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
    probabilities = metrics.merged(metrics.softmax(logits), members)
    curve = reliability(probabilities, truth, predicted=predicted)
    kinds = group_labels(loaded.rows, loaded.labels, planned.labels, frequency, loaded.columns)
    groups = by_group(right, kinds)
    weakest = worst(groups)
    result = SetResult(
        name=planned.name,
        role=planned.role,
        examples=len(truth),
        accuracy=float(right.mean()),
        interval=wilson_interval(int(right.sum()), len(truth)),
        ece=metrics.expected_calibration_error(probabilities, truth, predicted=predicted),
        brier=metrics.brier(probabilities, truth),
        nll=metrics.negative_log_likelihood(probabilities, truth),
        held_out_ece=held_out_ece(logits, truth, seed, members=members) if len(truth) >= FOLDS else None,
        temperature=best_temperature(logits, truth, members),
        reliability=[ReliabilityPoint(**each._asdict()) for each in curve],
        groups=[GroupResult(**each._asdict()) for each in groups],
        worst=None if weakest is None else GroupResult(**weakest._asdict()),
        noise=planned.noise,
        counted=planned.counted,
        source=loaded.source,
        data=loaded.fingerprint,
        max_length=loaded.max_length,
        note=planned.note,
    )
    return Measured(result, predicted, kinds)
