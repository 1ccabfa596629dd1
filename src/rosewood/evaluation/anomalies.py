"""Scores that tell texts of the trained kind from others (higher is more anomalous), and how well they do on sets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp, softmax
from sklearn.covariance import LedoitWolf
from sklearn.metrics import average_precision_score, roc_auc_score

from rosewood.errors import DataError
from rosewood.evaluation.metrics import LOGITS, Floats, finite
from rosewood.evaluation.predict import Answers
from rosewood.evaluation.sets import LoadedSet
from rosewood.results import AnomalyResult, MissingSet

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
            raise DataError(f"expected one label an example; got shapes {points.shape} and {truth.shape}.")
        classes, rows = np.unique(truth, return_inverse=True)
        means = np.stack([points[rows == row].mean(axis=0) for row in range(len(classes))])
        spread = LedoitWolf(assume_centered=True).fit(points - means[rows])
        return cls(means, spread.precision_)

    def scores(self, features: ArrayLike) -> Floats:
        """One score an example."""
        points = finite(features, 2, _FEATURES)
        if points.shape[1] != self.means.shape[1]:
            raise DataError(f"fitted to {self.means.shape[1]} dimensions a feature; got {points.shape[1]}.")
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
