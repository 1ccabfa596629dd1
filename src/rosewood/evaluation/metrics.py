"""Accuracy, Brier score and likelihood of predicted class probabilities, in plain numpy."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rosewood.errors import DataError

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


def accuracy(probabilities: ArrayLike, labels: ArrayLike) -> float:
    """Share of examples whose most probable class is the label; a tie goes to the first class."""
    chances, truth = checked(probabilities, labels)
    return float((chances.argmax(axis=1) == truth).mean())


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
            f"expected probabilities (examples, classes) and one label an example; "
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
