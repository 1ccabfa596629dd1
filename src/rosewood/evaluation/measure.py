"""The figures of one set, from the logits of its examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp

from rosewood.evaluation import metrics
from rosewood.evaluation.calibration import FOLDS, best_temperature, held_out_ece, reliability
from rosewood.evaluation.groups import by_group, group_labels, worst
from rosewood.evaluation.plan import Plan
from rosewood.evaluation.sets import LoadedSet
from rosewood.intervals import wilson_interval
from rosewood.results import GroupResult, ReliabilityPoint, SetResult

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


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
    HANS), and its probability, for calibration, is the sum of theirs.
    """
    planned, truth = loaded.planned, np.asarray(loaded.labels)
    predicted, merged = merge(logits, [plan.members(label) for label in planned.labels])
    right = predicted == truth
    probabilities = metrics.softmax(merged)
    kinds = group_labels(loaded.rows, loaded.labels, planned.labels, frequency, loaded.columns)
    groups = by_group(right, kinds)
    weakest = worst(groups)
    result = SetResult(
        name=planned.name,
        role=planned.role,
        examples=len(truth),
        accuracy=float(right.mean()),
        interval=wilson_interval(int(right.sum()), len(truth)),
        ece=metrics.expected_calibration_error(probabilities, truth),
        brier=metrics.brier(probabilities, truth),
        nll=metrics.negative_log_likelihood(probabilities, truth),
        held_out_ece=held_out_ece(merged, truth, seed) if len(truth) >= FOLDS else None,
        temperature=best_temperature(merged, truth),
        reliability=[ReliabilityPoint(**each._asdict()) for each in reliability(probabilities, truth)],
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


def merge(logits: ArrayLike, members: Sequence[Sequence[int]]) -> tuple[Ints, Floats]:
    """The predicted label of each example, and its logits, where each label stands for several outputs."""
    scores = np.asarray(logits, dtype=np.float64)
    label_of = np.empty(scores.shape[1], dtype=np.int64)
    for label, outputs in enumerate(members):
        label_of[list(outputs)] = label
    merged = np.stack([logsumexp(scores[:, list(outputs)], axis=1) for outputs in members], axis=1)
    return label_of[scores.argmax(axis=1)], merged
