"""Metrics of predictions: Brier score, likelihood, calibration (ECE, temperature), and how well anomalies are detected.

A higher anomaly score means that a text is less like those that the model was trained on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import logsumexp, softmax
from sklearn.covariance import LedoitWolf
from sklearn.metrics import average_precision_score, roc_auc_score

from rosewood.errors import DataError
from rosewood.evaluation.predict import Answers
from rosewood.evaluation.sets import LoadedSet
from rosewood.results import AnomalyResult, MissingSet, ReliabilityPoint

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Members = Sequence[Sequence[int]]
"""For each label the classes that it is made of."""
LOGITS = "logits (examples, classes)"


def merged(probabilities: ArrayLike, members: Members) -> Floats:
    """The probabilities of labels, (examples, labels): the sums of those of their classes."""
    chances = np.asarray(probabilities, dtype=np.float64)
    return np.stack([chances[:, list(classes)].sum(axis=1) for classes in members], axis=1)


def predicted_labels(scores: ArrayLike, members: Members) -> Ints:
    """The label that the class with the highest score belongs to; a tie goes to the first class."""
    array = np.asarray(scores)
    label_of = np.empty(array.shape[1], dtype=np.int64)
    for label, classes in enumerate(members):
        label_of[list(classes)] = label
    return label_of[array.argmax(axis=1)]


def brier(probabilities: ArrayLike, labels: ArrayLike) -> float:
    """Mean squared distance to the one-hot label, summed over classes: 0 is perfect, 2 the worst."""
    chances, truth = checked(probabilities, labels)
    return float(((chances - np.eye(chances.shape[1])[truth]) ** 2).sum(axis=1).mean())


def negative_log_likelihood(probabilities: ArrayLike, labels: ArrayLike) -> float:
    """Mean negative log probability of the label.

    Probabilities below the float resolution count as that resolution, as in scikit-learn: one
    example given no chance at all would otherwise make the mean infinite.
    """
    chances, truth = checked(probabilities, labels)
    given = chances[np.arange(len(truth)), truth]
    return float(-np.log(given.clip(min=np.finfo(np.float64).eps)).mean())


def finite(values: ArrayLike, dimensions: int, expected: str) -> Floats:
    """Values as an array of so many dimensions, in double precision; anything else is refused."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != dimensions or not array.size:
        raise DataError(f"expected {expected}, of one example or more; got shape {array.shape}.")
    if not np.isfinite(array).all():
        raise DataError(f"expected finite {expected}; got NaN or infinity.")
    return array


def checked(probabilities: ArrayLike, labels: ArrayLike) -> tuple[Floats, Ints]:
    """Probabilities and labels as arrays that fit each other; anything else is refused."""
    chances, truth = np.asarray(probabilities, dtype=np.float64), np.asarray(labels)
    if chances.ndim != 2 or truth.shape != chances.shape[:1]:
        raise DataError(
            f"expected probabilities (examples, classes) and one label per example; "
            f"got shapes {chances.shape} and {truth.shape}."
        )
    if not len(truth):
        raise DataError("no examples to measure: the set is empty.")
    if not np.allclose(chances.sum(axis=1), 1, atol=1e-4) or chances.min() < 0:
        raise DataError("expected rows of probabilities that sum to 1; got others (or NaN). Apply softmax to logits.")
    if truth.dtype.kind not in "iu" or truth.min() < 0 or truth.max() >= chances.shape[1]:
        raise DataError(
            f"expected integer labels from 0 to {chances.shape[1] - 1}; "
            f"got {truth.min()} to {truth.max()} ({truth.dtype}). Rows without a gold label cannot be scored."
        )
    return chances, truth.astype(np.int64)


TEMPERATURES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
FOLDS = 10
_COLDEST, _HOTTEST = 0.01, 100.0
_PLACES = 30  # between them, a factor of 1.4 apart


def reliability(
    probabilities: ArrayLike, labels: ArrayLike, bins: int = 10, predicted: Ints | None = None
) -> list[ReliabilityPoint]:
    """The points of a reliability diagram, in the bins of the expected calibration error.

    An empty bin has neither confidence nor accuracy.
    """
    confidence, right = judged(probabilities, labels, predicted)
    judgements, places = {"confidence": confidence, "accuracy": right}, bin_of(confidence, bins)
    points = []
    for k in range(bins):
        here = places == k
        means = {name: float(each[here].mean()) if here.any() else None for name, each in judgements.items()}
        points.append(ReliabilityPoint(low=k / bins, high=(k + 1) / bins, examples=int(here.sum()), **means))
    return points


def best_temperature(logits: ArrayLike, labels: ArrayLike, members: Members | None = None) -> float:
    """The temperature from 0.01 to 100 that minimises the negative log likelihood of softmax(logits / temperature).

    The probability of a label that `members` makes of several classes is the sum of theirs, at that temperature.
    """
    scores, truth = _checked_logits(logits, labels, members)
    classes = _singles(scores) if members is None else members
    own = _own_scores(scores, truth, classes)

    def slope(inverse: float) -> float:
        """The derivative by the inverse temperature."""
        expected, given = ((softmax(part * inverse, axis=1) * scores).sum(axis=1) for part in (scores, own))
        return float((expected - given).mean())

    def loss(inverse: float) -> float:
        return float((logsumexp(scores * inverse, axis=1) - logsumexp(own * inverse, axis=1)).mean())

    # For single classes the loss is convex in the inverse temperature and has one valley; merged, it may have several.
    ends = (1 / _HOTTEST, 1 / _COLDEST)
    places = ends if all(len(each) == 1 for each in classes) else np.geomspace(*ends, _PLACES).tolist()
    slopes = {each: slope(each) for each in places}
    sloping = [each for each, found in slopes.items() if found != 0]
    valleys = [
        brentq(slope, low, high, xtol=1e-14, rtol=1e-14)
        for low, high in pairwise(sloping)
        if slopes[low] < 0 < slopes[high]
    ]
    return float(1 / min([*ends, *valleys], key=loss))


def held_out_ece(
    logits: ArrayLike,
    labels: ArrayLike,
    seed: int = 0,
    members: Members | None = None,
) -> float:
    """Expected calibration error by RoAST's protocol, the mean over ten random folds.

    The temperature with the lowest error on one fold (the first of equal ones) is used on the other nine.
    Deviation from the official code, which uses the *number* of that temperature, counted from 0, as the temperature.
    `members` says which classes each label is made of; temperatures divide the scores of the classes.
    """
    scores, truth = _checked_logits(logits, labels, members)
    if len(truth) < FOLDS:
        raise DataError(f"the held-out calibration error needs at least {FOLDS} examples; got {len(truth)}.")
    order = np.random.default_rng(seed).permutation(len(truth))
    errors = []
    for fold in np.array_split(order, FOLDS):
        rest = np.setdiff1d(order, fold)
        best = int(np.argmin([_ece_at(scores[fold], truth[fold], each, members) for each in TEMPERATURES]))
        errors.append(_ece_at(scores[rest], truth[rest], TEMPERATURES[best], members))
    return float(np.mean(errors))


def _ece_at(scores: Floats, truth: Ints, temperature: float, members: Members | None) -> float:
    of_label = _singles(scores) if members is None else members
    chances = merged(softmax(scores / temperature, axis=1), of_label)
    return expected_calibration_error(chances, truth, predicted=predicted_labels(scores, of_label))


def _own_scores(scores: Floats, truth: Ints, members: Members) -> Floats:
    """The scores of the classes that an example's label is made of, minus infinity elsewhere."""
    inside = np.zeros((len(scores), scores.shape[1]), dtype=bool)
    for label, classes in enumerate(members):
        inside[np.ix_(truth == label, list(classes))] = True
    return np.where(inside, scores, -np.inf)


def _singles(scores: Floats) -> Members:
    return [[place] for place in range(scores.shape[1])]


def _checked_logits(logits: ArrayLike, labels: ArrayLike, members: Members | None) -> tuple[Floats, Ints]:
    scores = finite(logits, 2, LOGITS)
    chances = softmax(scores, axis=1)
    _, truth = checked(chances if members is None else merged(chances, members), labels)
    return scores, truth


def expected_calibration_error(
    probabilities: ArrayLike, labels: ArrayLike, bins: int = 10, predicted: Ints | None = None
) -> float:
    """Mean gap between confidence and accuracy over equal-width confidence bins, weighted by their size.

    Confidence is the probability of what is predicted: the most probable label, or what `predicted` says. Bin k holds
    the confidences in (k / bins, (k + 1) / bins], so a confidence of exactly 1 is in the last bin.
    """
    confidence, right = judged(probabilities, labels, predicted)
    gap = right - confidence
    sums = np.bincount(bin_of(confidence, bins), weights=gap, minlength=bins)
    return float(np.abs(sums).sum() / len(right))


def judged(probabilities: ArrayLike, labels: ArrayLike, predicted: Ints | None = None) -> tuple[Floats, Floats]:
    """For each example, the probability of its predicted label, and 1 if that is its label, else 0."""
    chances, truth = checked(probabilities, labels)
    chosen = chances.argmax(axis=1) if predicted is None else predicted
    return chances[np.arange(len(truth)), chosen], (chosen == truth).astype(np.float64)


def bin_of(confidence: Floats, bins: int) -> Ints:
    """The number of the bin (k / bins, (k + 1) / bins] that each confidence is in."""
    # The upper edges by division, not by repeated addition: 3 / 10 is the same float as a confidence of 0.3.
    return np.searchsorted(np.arange(1, bins) / bins, confidence, side="left")


_FEATURES = "features (examples, dimensions)"


def max_softmax(logits: ArrayLike) -> Floats:
    """Minus the highest class probability of each example: unsure is anomalous."""
    return np.asarray(-softmax(finite(logits, 2, LOGITS), axis=1).max(axis=1))


def energy(logits: ArrayLike, temperature: float = 1.0) -> Floats:
    """Minus the smooth maximum of each example's logits: low evidence for every class is anomalous."""
    if not temperature > 0:
        raise DataError(f"expected a temperature above 0; got {temperature}.")
    scores = finite(logits, 2, LOGITS)
    return -temperature * logsumexp(scores / temperature, axis=1)


@dataclass(frozen=True)
class Mahalanobis:
    """The squared distance to the nearest class mean, in units of the spread that the classes share."""

    means: Floats
    precision: Floats

    @classmethod
    def fit(cls, features: ArrayLike, labels: ArrayLike) -> Mahalanobis:
        """Class means and one covariance of features (examples, dimensions) around them.

        Ledoit and Wolf's shrinkage keeps the covariance invertible with fewer examples than dimensions.
        """
        points, truth = finite(features, 2, _FEATURES), np.asarray(labels)
        if truth.shape != points.shape[:1]:
            raise DataError(f"expected one label per example; got shapes {points.shape} and {truth.shape}.")
        classes, rows = np.unique(truth, return_inverse=True)
        means = np.stack([points[rows == row].mean(axis=0) for row in range(len(classes))])
        spread = LedoitWolf(assume_centered=True).fit(points - means[rows])
        return cls(means, spread.precision_)

    def scores(self, features: ArrayLike) -> Floats:
        """One score per example."""
        points = finite(features, 2, _FEATURES)
        if points.shape[1] != self.means.shape[1]:
            raise DataError(f"fitted to {self.means.shape[1]} dimensions per feature; got {points.shape[1]}.")
        # Class by class: all differences at once would take classes times the memory of the features.
        return np.min([self._squared(points - mean) for mean in self.means], axis=0)

    def _squared(self, differences: Floats) -> Floats:
        return ((differences @ self.precision) * differences).sum(axis=1)


class Detection(NamedTuple):
    """How well scores tell the two kinds apart, as shares; other texts are the positive class."""

    auroc: float
    aupr: float
    fpr_at_95_tpr: float


def detection(inside_scores: ArrayLike, outside_scores: ArrayLike) -> Detection:
    """Detection of outside examples by their higher scores.

    `fpr_at_95_tpr` is the share of inside examples reported at the highest threshold that reports at least
    95 % of the outside ones; a score equal to the threshold is reported.
    """
    inside, outside = finite(inside_scores, 1, "inside scores"), finite(outside_scores, 1, "outside scores")
    scores = np.concatenate([inside, outside])
    is_outside = np.repeat([0, 1], [len(inside), len(outside)])
    reported = -(-95 * len(outside) // 100)
    threshold = np.sort(outside)[::-1][reported - 1]
    return Detection(
        auroc=float(roc_auc_score(is_outside, scores)),
        aupr=float(average_precision_score(is_outside, scores)),
        fpr_at_95_tpr=float((inside >= threshold).mean()),
    )


Score = Callable[[LoadedSet], ArrayLike]


def anomaly_sets(loaded: Sequence[LoadedSet], inside: Sequence[str]) -> list[LoadedSet]:
    """The sets that anomalies are measured on: first the inside set, then anomalies, then the reference."""
    available = {each.planned.name: each for each in loaded}
    within = next((available[name] for name in inside if name in available), None)
    outside = _with_role(loaded, "anomaly")
    if within is None or not outside:
        return []
    return [within, *outside, *_with_role(loaded, "reference")]


def missing_anomaly_sets(loaded: Sequence[LoadedSet], inside: Sequence[str]) -> list[MissingSet]:
    """The anomaly sets that have no inside set to be compared with."""
    if anomaly_sets(loaded, inside):
        return []
    reason = f"the set that it is compared with is missing: {', '.join(inside) or 'the suite names nothing as inside'}"
    return [MissingSet(name=each.planned.name, role="anomaly", reason=reason) for each in _with_role(loaded, "anomaly")]


def anomaly_results(involved: Sequence[LoadedSet], answers: Answers) -> list[AnomalyResult]:
    """Every anomaly set by every score."""
    if not involved:
        return []
    within, outside = involved[0], _with_role(involved, "anomaly")
    results = []
    for name, score in _scores(involved, answers).items():
        expected = score(within)
        for each in outside:
            figures = detection(expected, score(each))._asdict()
            results.append(
                AnomalyResult(
                    name=each.planned.name,
                    inside=within.planned.name,
                    score=name,
                    examples=len(each.rows),
                    source=each.source,
                    data=each.fingerprint,
                    **figures,
                )
            )
    return results


def _scores(involved: Sequence[LoadedSet], answers: Answers) -> dict[str, Score]:
    scores: dict[str, Score] = {
        "max_softmax": lambda each: max_softmax(answers.logits(each.questions)),
        "energy": lambda each: energy(answers.logits(each.questions)),
    }
    references = _with_role(involved, "reference")
    if references:
        fitted = Mahalanobis.fit(answers.features(references[0].questions), references[0].labels)
        scores["mahalanobis"] = lambda each: fitted.scores(answers.features(each.questions))
    return scores


def _with_role(sets: Sequence[LoadedSet], role: str) -> list[LoadedSet]:
    return [each for each in sets if each.planned.role == role]
