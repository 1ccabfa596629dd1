"""Unweighted means over the sets of a suite; each says which sets it lacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rosewood.evaluation.calibration import FOLDS
from rosewood.results import AnomalyResult, Mean, MissingSet, Role, SetResult

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
