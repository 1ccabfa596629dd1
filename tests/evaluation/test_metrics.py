"""Metrics agree with scikit-learn, scipy, an independent slow version and with hand computation."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import norm
from sklearn.metrics import brier_score_loss, log_loss

from rosewood.errors import DataError
from rosewood.evaluation.metrics import (
    brier,
    expected_calibration_error,
    negative_log_likelihood,
    predicted_labels,
)
from rosewood.tensors.statistics import wilson_interval


def random_case(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    classes = 2 + seed % 4
    logits = rng.normal(scale=1 + seed % 5, size=(rng.integers(1, 300), classes))
    return softmax(logits, axis=1), rng.integers(classes, size=len(logits))


def slow_ece(probabilities: np.ndarray, labels: np.ndarray, bins: int) -> float:
    """Straight from the definition, one example and one bin at a time."""
    total = 0.0
    for k in range(bins):
        confidences, hits = [], []
        for row, label in zip(probabilities.tolist(), labels.tolist(), strict=True):
            top = max(row)
            if k / bins < top <= (k + 1) / bins:
                confidences.append(top)
                hits.append(row.index(top) == label)
        if hits:
            total += len(hits) / len(labels) * abs(sum(hits) / len(hits) - sum(confidences) / len(hits))
    return total


@pytest.mark.parametrize("seed", range(25))
def test_agrees_with_libraries_and_slow_version(seed: int) -> None:
    probabilities, labels = random_case(seed)
    classes = list(range(probabilities.shape[1]))
    expected = log_loss(labels, probabilities, labels=classes)
    assert negative_log_likelihood(probabilities, labels) == pytest.approx(expected, abs=1e-9)
    # scikit-learn halves the score for two classes unless told not to; ours is always the full sum.
    expected = brier_score_loss(labels, probabilities, labels=classes, scale_by_half=False)
    assert brier(probabilities, labels) == pytest.approx(expected, abs=1e-9)
    for bins in (1, 10, 15):
        expected = slow_ece(probabilities, labels, bins)
        assert expected_calibration_error(probabilities, labels, bins) == pytest.approx(expected, abs=1e-9)


def test_by_hand() -> None:
    probabilities, labels = [[0.8, 0.2], [0.3, 0.7], [0.6, 0.4]], [0, 0, 0]
    assert brier(probabilities, labels) == pytest.approx((0.08 + 0.98 + 0.32) / 3)
    assert negative_log_likelihood(probabilities, labels) == pytest.approx(-np.log(0.8 * 0.3 * 0.6) / 3)
    # One example in each of three bins: gaps 0.2, 0.7 and 0.4.
    assert expected_calibration_error(probabilities, labels) == pytest.approx(1.3 / 3)


def test_gaps_cancel_inside_a_bin_only() -> None:
    # 0.75 right and 0.75 wrong twice each, one bin: accuracy 0.5 against confidence 0.75.
    probabilities = [[0.75, 0.25]] * 4
    assert expected_calibration_error(probabilities, [0, 1, 0, 1]) == pytest.approx(0.25)


@pytest.mark.parametrize("bins", [3, 7, 10, 15, 20])
def test_a_confidence_on_an_edge_is_in_the_lower_bin(bins: int) -> None:
    for k in range(bins // 2 + 1, bins):
        edge, above = k / bins, np.nextafter(k / bins, 1)
        # One right just on the edge, one wrong just above: apart, their gaps add; together, they cancel.
        probabilities = [[edge, 1 - edge], [above, 1 - above]]
        ece = expected_calibration_error(probabilities, [0, 1], bins)
        assert ece == pytest.approx(((1 - edge) + edge) / 2), (k, bins)
        together = [[edge, 1 - edge], [edge, 1 - edge]]
        assert expected_calibration_error(together, [0, 1], bins) == pytest.approx(abs(0.5 - edge))


def test_certainty() -> None:
    sure = [[1.0, 0.0], [0.0, 1.0]]
    assert expected_calibration_error(sure, [0, 1]) == 0
    assert brier(sure, [0, 1]) == 0
    assert negative_log_likelihood(sure, [0, 1]) == 0
    assert expected_calibration_error(sure, [1, 0]) == 1
    assert brier(sure, [1, 0]) == 2
    assert negative_log_likelihood(sure, [1, 0]) == pytest.approx(-np.log(np.finfo(float).eps))


@pytest.mark.parametrize(("correct", "examples"), [(0, 7), (7, 7), (1, 2), (812, 872), (50, 100)])
def test_wilson_solves_its_equation(correct: int, examples: int) -> None:
    low, high = wilson_interval(correct, examples)
    share = correct / examples
    assert 0 <= low <= share <= high <= 1
    z = norm.ppf(0.975)
    # Both ends are where the observed share is just z standard errors (of that end) away.
    for end in {low, high} - {0.0, 1.0}:
        assert abs(share - end) == pytest.approx(z * np.sqrt(end * (1 - end) / examples), abs=1e-9)


def test_a_tie_goes_to_the_first_class() -> None:
    assert predicted_labels([[0.5, 0.5]], [[0], [1]]) == [0]


METRICS = [expected_calibration_error, brier, negative_log_likelihood]


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(
    ("probabilities", "labels", "message"),
    [
        (np.empty((0, 2)), np.empty(0, dtype=int), "no examples to measure: the set is empty"),
        ([[0.5, 0.5]], [0, 1], r"got shapes \(1, 2\) and \(2,\)"),
        ([0.5, 0.5], [0, 1], r"got shapes \(2,\) and \(2,\)"),
        ([[2.0, -1.0]], [0], "Apply softmax to logits"),
        ([[3.0, 1.0]], [0], "Apply softmax to logits"),
        ([[np.nan, np.nan]], [0], "sum to 1; got others"),
        ([[0.5, 0.5]], [-1], "expected integer labels from 0 to 1; got -1 to -1"),
        ([[0.5, 0.5]], [2], "expected integer labels from 0 to 1; got 2 to 2"),
        ([[0.5, 0.5]], [0.5], r"got 0.5 to 0.5 \(float64\)"),
    ],
)
def test_what_cannot_be_measured(metric: Callable, probabilities: np.ndarray, labels: np.ndarray, message: str) -> None:
    with pytest.raises(DataError, match=message):
        metric(probabilities, labels)


@pytest.mark.parametrize(("correct", "examples"), [(0, 0), (3, 2), (-1, 5)])
def test_impossible_counts(correct: int, examples: int) -> None:
    with pytest.raises(DataError, match=f"got {correct} correct of {examples}"):
        wilson_interval(correct, examples)
