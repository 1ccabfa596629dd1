"""How far a model's confidence can be believed, bin by bin, and after its logits are divided by a temperature."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import softmax as scipy_softmax

from rosewood.errors import DataError
from rosewood.evaluation.metrics import (
    LOGITS,
    Floats,
    Ints,
    bin_of,
    checked,
    expected_calibration_error,
    finite,
    softmax,
)

TEMPERATURES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
FOLDS = 10
_COLDEST, _HOTTEST = 0.01, 100.0


class ReliabilityBin(NamedTuple):
    """The examples with a confidence in (low, high], their mean confidence and the share of them that is right."""

    low: float
    high: float
    examples: int
    confidence: float | None
    accuracy: float | None


def reliability(probabilities: ArrayLike, labels: ArrayLike, bins: int = 10) -> list[ReliabilityBin]:
    """The points of a reliability diagram, in the bins of the expected calibration error.

    An empty bin has neither confidence nor accuracy.
    """
    chances, truth = checked(probabilities, labels)
    confidence, right = chances.max(axis=1), chances.argmax(axis=1) == truth
    places = bin_of(confidence, bins)
    return [_bin(k, bins, confidence[places == k], right[places == k]) for k in range(bins)]


def best_temperature(logits: ArrayLike, labels: ArrayLike) -> float:
    """The temperature from 0.01 to 100 that minimises the negative log likelihood of softmax(logits / temperature)."""
    scores, truth = _checked_logits(logits, labels)
    given = scores[np.arange(len(truth)), truth]

    def slope(inverse: float) -> float:
        """The derivative by the inverse temperature, in which the likelihood is convex: it never falls."""
        expected = (scipy_softmax(scores * inverse, axis=1) * scores).sum(axis=1)
        return float((expected - given).mean())

    if slope(1 / _HOTTEST) >= 0:
        return _HOTTEST
    if slope(1 / _COLDEST) <= 0:
        return _COLDEST
    return float(1 / brentq(slope, 1 / _HOTTEST, 1 / _COLDEST, xtol=1e-14, rtol=1e-14))


def held_out_ece(
    logits: ArrayLike,
    labels: ArrayLike,
    seed: int = 0,
    temperatures: Sequence[float] = TEMPERATURES,
    official_bug: bool = False,
) -> float:
    """Expected calibration error by RoAST's protocol, the mean over ten random folds.

    The temperature with the lowest error on one fold (the first of equal ones) is used on the other nine.
    The official code uses the *number* of that temperature, counted from 0, as the temperature; number 0
    divides by zero and counts as an error of 0. `official_bug` does the same, to compare with published figures.
    """
    scores, truth = _checked_logits(logits, labels)
    if len(truth) < FOLDS:
        raise DataError(f"the held-out calibration error needs at least {FOLDS} examples; got {len(truth)}.")
    if not temperatures or min(temperatures) <= 0:
        raise DataError(f"expected temperatures above 0; got {list(temperatures)}.")
    order = np.random.default_rng(seed).permutation(len(truth))
    errors = []
    for fold in np.array_split(order, FOLDS):
        rest = np.setdiff1d(order, fold)
        best = int(np.argmin([_ece_at(scores[fold], truth[fold], each) for each in temperatures]))
        chosen = best if official_bug else temperatures[best]
        errors.append(_ece_at(scores[rest], truth[rest], chosen) if chosen else 0.0)
    return float(np.mean(errors))


def _bin(k: int, bins: int, confidence: Floats, right: np.ndarray) -> ReliabilityBin:
    filled = len(right) > 0
    means = (float(confidence.mean()), float(right.mean())) if filled else (None, None)
    return ReliabilityBin(k / bins, (k + 1) / bins, len(right), *means)


def _ece_at(scores: Floats, truth: Ints, temperature: float) -> float:
    return expected_calibration_error(softmax(scores / temperature), truth)


def _checked_logits(logits: ArrayLike, labels: ArrayLike) -> tuple[Floats, Ints]:
    scores = finite(logits, 2, LOGITS)
    _, truth = checked(softmax(scores), labels)
    return scores, truth
