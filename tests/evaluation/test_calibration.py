"""Reliability bins add up to the calibration error; temperatures minimise what they should; folds by a slow version."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax
from sklearn.calibration import calibration_curve

from rosewood.errors import DataError
from rosewood.evaluation import metrics
from rosewood.evaluation.metrics import (
    TEMPERATURES,
    best_temperature,
    expected_calibration_error,
    held_out_ece,
    merged,
    predicted_labels,
    reliability,
)


def random_case(seed: int, examples: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Logits that know something about the labels, so that the best temperature is inside the bounds."""
    rng = np.random.default_rng(seed)
    classes = int(rng.integers(2, 6))
    labels = rng.integers(classes, size=examples)
    logits = rng.normal(scale=rng.uniform(0.5, 5), size=(examples, classes))
    logits[np.arange(examples), labels] += rng.uniform(0.5, 2)
    return logits, labels


def nll(logits: np.ndarray, labels: np.ndarray, temperature: float) -> float:
    return float(-log_softmax(logits / temperature, axis=1)[np.arange(len(labels)), labels].mean())


def test_bins_by_hand() -> None:
    bins = reliability([[0.8, 0.2], [0.75, 0.25], [0.3, 0.7], [0.5, 0.5]], [0, 1, 0, 0], bins=4)
    assert [tuple(dict(each).values()) for each in bins] == [
        (0.0, 0.25, 0, None, None),
        (0.25, 0.5, 1, 0.5, 1.0),
        (0.5, 0.75, 2, pytest.approx(0.725), 0.0),
        (0.75, 1.0, 1, 0.8, 1.0),
    ]


@given(st.integers(0, 10_000), st.integers(1, 20))
@settings(max_examples=60, deadline=None)
def test_bins_agree_with_the_calibration_error_and_scikit_learn(seed: int, bins: int) -> None:
    logits, labels = random_case(seed)
    probabilities = softmax(logits, axis=1)
    found = reliability(probabilities, labels, bins)
    assert sum(each.examples for each in found) == len(labels)
    filled = [each for each in found if each.examples]
    gaps = sum(each.examples / len(labels) * abs(each.accuracy - each.confidence) for each in filled)
    assert gaps == pytest.approx(expected_calibration_error(probabilities, labels, bins), abs=1e-9)
    accuracy, confidence = calibration_curve(
        probabilities.argmax(axis=1) == labels, probabilities.max(axis=1), n_bins=bins
    )
    np.testing.assert_allclose([each.accuracy for each in filled], accuracy, atol=1e-9)
    np.testing.assert_allclose([each.confidence for each in filled], confidence, atol=1e-9)


@given(st.integers(0, 10_000))
@settings(max_examples=60, deadline=None)
def test_no_temperature_has_a_lower_loss(seed: int) -> None:
    logits, labels = random_case(seed)
    best = best_temperature(logits, labels)
    assert 0.01 <= best <= 100
    searched = minimize_scalar(
        lambda log: nll(logits, labels, np.exp(log)),
        bounds=(np.log(0.01), np.log(100)),
        method="bounded",
        options={"xatol": 1e-9},
    )
    assert nll(logits, labels, best) <= searched.fun + 1e-9
    # Scaled logits need a scaled temperature, far more exactly than comparing losses could tell.
    if 0.1 < best < 10:
        assert best_temperature(3 * logits, labels) == pytest.approx(3 * best, rel=1e-9)


def test_a_temperature_by_hand() -> None:
    # Three of four right with a margin of 2: the loss is lowest where sigmoid(2 / temperature) is 3/4.
    assert best_temperature([[2.0, 0.0]] * 4, [0, 0, 0, 1]) == pytest.approx(2 / np.log(3), rel=1e-12)


def test_temperatures_have_bounds() -> None:
    assert best_temperature([[1.0, 0.0], [0.0, 1.0]], [0, 1]) == 0.01
    assert best_temperature([[1.0, 0.0], [0.0, 1.0]], [1, 0]) == 100
    assert np.isfinite(best_temperature([[5000.0, -5000.0], [0.0, 1.0]], [0, 1]))


MERGED = [[0], [1, 2]]


def merged_case(temperature: float, examples: int) -> tuple[np.ndarray, np.ndarray]:
    """Logits of three classes that are right once they are divided by a temperature, and labels of two."""
    rng = np.random.default_rng(0)
    right = rng.normal(size=(examples, 3))
    drawn = rng.random(examples)[:, None] > softmax(right, axis=1).cumsum(axis=1)
    return temperature * right, (drawn.sum(axis=1) > 0).astype(int)


def test_the_temperature_of_a_three_way_model_is_found_on_a_two_way_set() -> None:
    logits, labels = merged_case(2.0, 20_000)
    found = best_temperature(logits, labels, MERGED)
    assert found == pytest.approx(2.0, abs=0.02)
    # Not what divides the merged logits.
    together = np.stack([logits[:, 0], np.logaddexp(logits[:, 1], logits[:, 2])], axis=1)
    assert abs(best_temperature(together, labels) - 2) > 0.08


@given(st.integers(0, 10_000))
@settings(max_examples=40, deadline=None)
def test_no_temperature_has_a_lower_loss_on_merged_labels(seed: int) -> None:
    """Few examples, so that the loss has several valleys now and then."""
    rng = np.random.default_rng(seed)
    logits, labels = rng.normal(scale=3, size=(4, 4)), rng.integers(2, size=4)

    def loss(temperature: float) -> float:
        chances = softmax(logits / temperature, axis=1)
        pairs = np.stack([chances[:, [0, 3]].sum(1), chances[:, [1, 2]].sum(1)], axis=1)
        return float(-np.log(pairs[np.arange(4), labels].clip(1e-300)).mean())

    best = best_temperature(logits, labels, [[0, 3], [1, 2]])
    assert loss(best) <= min(loss(each) for each in np.geomspace(0.01, 100, 2001)) + 1e-9


def test_labels_in_another_order_than_the_classes() -> None:
    logits, labels = random_case(3)
    classes = logits.shape[1]
    order = np.random.default_rng(0).permutation(classes)
    moved = np.argsort(order)[labels]  # label i of the set is class order[i]
    members = [[int(place)] for place in order]
    assert best_temperature(logits, moved, members) == best_temperature(logits, labels)
    assert held_out_ece(logits, moved, members=members) == pytest.approx(held_out_ece(logits, labels), abs=1e-12)


def test_accuracy_and_calibration_judge_the_same_predictions(monkeypatch: pytest.MonkeyPatch) -> None:
    logits, labels = merged_case(1.0, 3000)
    predicted = predicted_labels(logits, MERGED)
    chances = merged(softmax(logits, axis=1), MERGED)
    assert (predicted != chances.argmax(axis=1)).mean() > 0.02, "the two argmaxes should differ here"
    curve = [each for each in reliability(chances, labels, predicted=predicted) if each.examples]
    share = sum(each.accuracy * each.examples for each in curve) / len(labels)
    assert share == pytest.approx((predicted == labels).mean(), abs=1e-12)
    gaps = sum(each.examples / len(labels) * abs(each.accuracy - each.confidence) for each in curve)
    assert expected_calibration_error(chances, labels, predicted=predicted) == pytest.approx(gaps, abs=1e-12)
    assert gaps < 0.02, "these probabilities are right"
    # And the protocol of ten folds, whose temperatures change no prediction.
    monkeypatch.setattr(metrics, "TEMPERATURES", [1.0])
    assert held_out_ece(logits, labels, members=MERGED) == pytest.approx(gaps, abs=0.01)


def slow_held_out_ece(logits: np.ndarray, labels: np.ndarray, seed: int) -> float:
    order = np.random.default_rng(seed).permutation(len(labels)).tolist()
    sizes = [len(order) // 10 + (fold < len(order) % 10) for fold in range(10)]
    total = 0.0
    for fold in range(10):
        start = sum(sizes[:fold])
        one = order[start : start + sizes[fold]]
        nine = order[:start] + order[start + sizes[fold] :]

        def at(rows: list[int], temperature: float) -> float:
            return expected_calibration_error(softmax(logits[rows] / temperature, axis=1), labels[rows])

        errors = {temperature: at(one, temperature) for temperature in TEMPERATURES}
        total += at(nine, min(TEMPERATURES, key=errors.__getitem__)) / 10
    return total


@pytest.mark.parametrize("seed", range(12))
def test_held_out_agrees_with_a_slow_version(seed: int) -> None:
    logits, labels = random_case(seed, examples=100 + seed)
    expected = slow_held_out_ece(logits, labels, seed)
    assert held_out_ece(logits, labels, seed) == pytest.approx(expected, abs=1e-9)


def test_one_temperature_of_one_is_no_scaling(monkeypatch: pytest.MonkeyPatch) -> None:
    # All rows alike, so that every nine folds have the error of the whole.
    logits, labels = np.tile([[1.0, 0.0]], (20, 1)), np.zeros(20, dtype=int)
    plain = expected_calibration_error(softmax(logits, axis=1), labels)
    assert held_out_ece(logits, labels) < plain / 10  # the coldest fits best
    monkeypatch.setattr(metrics, "TEMPERATURES", [1.0])
    assert held_out_ece(logits, labels) == pytest.approx(plain, abs=1e-12)


@pytest.mark.parametrize(
    ("logits", "labels", "message"),
    [
        (np.empty((0, 2)), [], r"of one example or more; got shape \(0, 2\)"),
        ([1.0, 2.0], [0, 1], r"got shape \(2,\)"),
        ([[np.nan, 1.0]], [0], "expected finite logits"),
        ([[0.0, np.inf]], [0], "expected finite logits"),
        ([[0.0, 1.0]], [2], "expected integer labels from 0 to 1; got 2 to 2"),
        ([[0.0, 1.0]], [0, 1], r"got shapes \(1, 2\) and \(2,\)"),
    ],
)
def test_what_cannot_be_calibrated(logits: np.ndarray, labels: np.ndarray, message: str) -> None:
    for function in (best_temperature, held_out_ece):
        with pytest.raises(DataError, match=message):
            function(logits, labels)


def test_too_few_examples() -> None:
    with pytest.raises(DataError, match="at least 10 examples; got 9"):
        held_out_ece(np.zeros((9, 2)), [0] * 9)
