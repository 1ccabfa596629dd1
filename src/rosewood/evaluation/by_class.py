"""Precision, recall and F1 of each label, their means, and which label is taken for which."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rosewood.results import ClassResult


class ByClass(NamedTuple):
    """The figures of all labels of a set."""

    classes: list[ClassResult]
    macro_f1: float | None
    micro_f1: float | None


def by_class(truth: ArrayLike, predicted: ArrayLike, names: Sequence[str]) -> ByClass:
    """From which labels each example has and which it is given, both `(examples, labels)` of truth values.

    A label that neither occurs nor is predicted has no F1 and is not in the mean, as in scikit-learn.
    """
    has, given = np.asarray(truth, dtype=bool), np.asarray(predicted, dtype=bool)
    examples, answers, hits = has.sum(axis=0), given.sum(axis=0), (has & given).sum(axis=0)
    classes = [
        ClassResult(
            label=name,
            examples=int(examples[i]),
            predicted=int(answers[i]),
            precision=_share(hits[i], answers[i]),
            recall=_share(hits[i], examples[i]),
            f1=_share(2 * hits[i], examples[i] + answers[i]),
        )
        for i, name in enumerate(names)
    ]
    found = [each.f1 for each in classes if each.f1 is not None]
    macro = float(np.mean(found)) if found else None
    return ByClass(classes, macro, _share(2 * hits.sum(), examples.sum() + answers.sum()))


def confusion(truth: ArrayLike, predicted: ArrayLike, labels: int) -> list[list[int]]:
    """How often each label (a row) was predicted as each (a column)."""
    counts: NDArray[np.int64] = np.zeros((labels, labels), dtype=np.int64)
    np.add.at(counts, (np.asarray(truth), np.asarray(predicted)), 1)
    rows: list[list[int]] = counts.tolist()
    return rows


def _share(part: int, whole: int) -> float | None:
    return float(part / whole) if whole else None
