"""Anomaly scores and their quality agree with scikit-learn, scipy and hand computation."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import mahalanobis
from scipy.special import logsumexp, softmax
from scipy.stats import mannwhitneyu
from sklearn.covariance import ledoit_wolf
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from rosewood.errors import DataError
from rosewood.evaluation.metrics import Detection, Mahalanobis, detection, energy, max_softmax


def clusters(seed: int, examples: int = 80, dimensions: int = 5) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = np.arange(examples) % 3
    stretch = rng.normal(size=(dimensions, dimensions))
    return rng.normal(size=(3, dimensions))[labels] * 4 + rng.normal(size=(examples, dimensions)) @ stretch, labels


# Whole numbers, so that scores are often equal.
SCORES = st.lists(st.integers(-5, 5).map(float), min_size=1, max_size=60)


@given(SCORES, SCORES)
@settings(max_examples=100, deadline=None)
def test_detection_agrees_with_libraries(inside: list[float], outside: list[float]) -> None:
    found = detection(inside, outside)
    truth, scores = [0] * len(inside) + [1] * len(outside), [*inside, *outside]
    assert found.auroc == pytest.approx(roc_auc_score(truth, scores), abs=1e-9)
    chance = mannwhitneyu(outside, inside).statistic / (len(inside) * len(outside))
    assert found.auroc == pytest.approx(chance, abs=1e-9)
    assert found.aupr == pytest.approx(average_precision_score(truth, scores), abs=1e-9)
    fpr, tpr, _ = roc_curve(truth, scores, drop_intermediate=False)
    assert found.fpr_at_95_tpr == pytest.approx(fpr[tpr >= 0.95].min(), abs=1e-9)


def test_detection_by_hand() -> None:
    assert detection([1, 2], [3, 4]) == Detection(1.0, 1.0, 0.0)
    assert detection([3, 4], [1, 2]).auroc == 0
    assert detection([7, 7], [7]) == Detection(0.5, pytest.approx(1 / 3), 1.0)
    # Of twenty outside examples nineteen must be reported: the threshold is the second lowest, 1.
    outside = [0.0, *range(1, 20)]
    assert detection([0.5, 1.0, 30.0, -4.0], outside).fpr_at_95_tpr == 0.5


@given(st.integers(0, 10_000), st.floats(0.1, 10))
@settings(max_examples=50, deadline=None)
def test_logit_scores_agree_with_scipy(seed: int, temperature: float) -> None:
    logits = np.random.default_rng(seed).normal(scale=9, size=(20, 4))
    np.testing.assert_allclose(max_softmax(logits), -softmax(logits, axis=1).max(axis=1), atol=1e-9)
    expected = -temperature * logsumexp(logits / temperature, axis=1)
    np.testing.assert_allclose(energy(logits, temperature), expected, atol=1e-9)
    # Between the largest logit and temperature * log(classes) above it.
    excess = -energy(logits, temperature) - logits.max(axis=1)
    assert (excess >= -1e-9).all() and (excess <= temperature * np.log(4) + 1e-9).all()


def test_logit_scores_by_hand() -> None:
    np.testing.assert_allclose(max_softmax([[0.0, 0.0], [np.log(3), 0.0]]), [-0.5, -0.75], atol=1e-12)
    np.testing.assert_allclose(energy([[0.0, 0.0], [np.log(3), 0.0]]), [-np.log(2), -np.log(4)], atol=1e-12)
    np.testing.assert_allclose(energy([[2000.0, 0.0]]), [-2000.0])


@pytest.mark.parametrize("seed", range(5))
def test_distance_agrees_with_scipy(seed: int) -> None:
    features, labels = clusters(seed)
    means = np.stack([features[labels == each].mean(axis=0) for each in range(3)])
    covariance, _ = ledoit_wolf(features - means[labels], assume_centered=True)
    precision = np.linalg.inv(covariance)
    fresh, _ = clusters(seed + 100)
    expected = [min(mahalanobis(row, mean, precision) ** 2 for mean in means) for row in fresh]
    np.testing.assert_allclose(Mahalanobis.fit(features, labels).scores(fresh), expected, rtol=1e-9)


def test_many_examples_leave_hardly_any_shrinkage() -> None:
    features, labels = clusters(0, examples=30_000, dimensions=3)
    plain = LinearDiscriminantAnalysis(solver="lsqr", store_covariance=True).fit(features, labels)
    differences = features[:, None] - plain.means_
    squared = np.einsum("eci,ij,ecj->ec", differences, np.linalg.inv(plain.covariance_), differences).min(axis=1)
    np.testing.assert_allclose(Mahalanobis.fit(features, labels).scores(features), squared, rtol=0.02)


def test_fewer_examples_than_dimensions() -> None:
    features, labels = clusters(1, examples=12, dimensions=40)
    scores = Mahalanobis.fit(features, labels).scores(np.concatenate([features, features + 100]))
    assert np.isfinite(scores).all() and (scores >= 0).all()
    assert scores[12:].min() > scores[:12].max()


def test_no_spread_at_all_is_finite() -> None:
    fitted = Mahalanobis.fit([[1.0, 2.0], [1.0, 2.0], [3.0, 3.0]], [0, 0, 4])
    assert np.isfinite(fitted.scores([[1.0, 2.0], [9.0, 9.0]])).all()


@pytest.mark.parametrize("score", [max_softmax, energy])
@pytest.mark.parametrize("logits", [[], [1.0, 2.0], np.empty((0, 3)), [[np.nan, 0.0]]])
def test_refused_logits(score: object, logits: object) -> None:
    with pytest.raises(DataError, match=r"expected (finite )?logits"):
        score(logits)  # type: ignore[operator]


def test_refused_input() -> None:
    with pytest.raises(DataError, match="expected outside scores, of one example or more"):
        detection([1.0], [])
    with pytest.raises(DataError, match="expected finite inside scores"):
        detection([np.nan], [1.0])
    with pytest.raises(DataError, match="temperature above 0; got 0"):
        energy([[1.0, 2.0]], 0)
    with pytest.raises(DataError, match="expected one label per example"):
        Mahalanobis.fit([[1.0, 2.0]], [0, 1])
    with pytest.raises(DataError, match="fitted to 2 dimensions per feature; got 3"):
        Mahalanobis.fit([[1.0, 2.0], [2.0, 1.0]], [0, 1]).scores([[1.0, 2.0, 3.0]])
