"""Accuracy in groups of examples, which a good mean can hide; precision, recall and F1 of each label."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import regex
from numpy.typing import ArrayLike, NDArray

from rosewood.errors import DataError
from rosewood.results import ClassResult
from rosewood.tensors.statistics import wilson_interval
from rosewood.words.text import WORD

RARE_BELOW = 5
"""A word is rare if the training texts have it fewer times than this."""
_LENGTH_BANDS = (5, 10, 20, 50, 200)
_NEGATIONS = {
    *("no", "not", "never", "none", "nobody", "nothing", "nowhere", "neither", "nor", "without", "cannot", "no-one"),
    *("aint", "arent", "cant", "couldnt", "didnt", "doesnt", "dont", "hadnt", "hasnt", "havent", "isnt", "shouldnt"),
    *("wasnt", "werent", "wont", "wouldnt"),
}


def words_of(text: str) -> list[str]:
    """The words of a text as they are counted: without case, and with straight apostrophes."""
    return regex.findall(WORD, text.casefold().replace("’", "'"))


def word_frequency(texts: Iterable[str]) -> Counter[str]:
    """How often each word occurs in the training texts."""
    return Counter(word for text in texts for word in words_of(text))


def group_labels(
    texts: Sequence[tuple[str, ...]],
    labels: Sequence[int] | None,
    names: Sequence[str],
    frequency: Mapping[str, int] | None,
    columns: Mapping[str, Sequence[Any]] | None = None,
) -> dict[str, list[str]]:
    """For every kind of grouping, the group of each example.

    class: the name of its label; not where there are no single labels.
    length: its number of words, both texts of a pair together, in fixed bands that mean the same in every set.
    negation: whether it has an English word of negation; of a pair, in which of its texts.
    rare words: the share of its words that are rare in the training texts; needs their `frequency`.
    Every further column of the data is a grouping by its values.
    """
    words = [[words_of(text) for text in each] for each in texts]
    together = [[word for text in each for word in text] for each in words]
    kinds: dict[str, list[str]] = {
        **({} if labels is None else {"class": [names[label] for label in labels]}),
        "length": [_length(each) for each in together],
        "negation": [_negation(each) for each in words],
    }
    if frequency is not None:
        kinds["rare words"] = [_rarity(each, frequency) for each in together]
    for column, values in (columns or {}).items():
        if column in (*kinds, "class"):
            raise DataError(f"the column {column!r} has the name of a built-in grouping: rename the column.")
        kinds[column] = ["(none)" if value is None else str(value) for value in values]
    for kind, groups in kinds.items():
        _check_length(kind, groups, len(texts))
    return kinds


class GroupAccuracy(NamedTuple):
    """The accuracy on one group of a kind, with its 95 % Wilson interval."""

    kind: str
    group: str
    examples: int
    accuracy: float
    interval: tuple[float, float]


def by_group(correct: ArrayLike, groups: Mapping[str, Sequence[str]]) -> list[GroupAccuracy]:
    """The accuracy on every group of every kind, from one truth value an example; groups in natural order."""
    right = np.asarray(correct, dtype=bool)
    found = []
    for kind, names in groups.items():
        _check_length(kind, names, len(right))
        examples = Counter(names)
        hits = Counter(name for name, hit in zip(names, right, strict=True) if hit)
        for group in sorted(examples, key=_natural):
            share, interval = hits[group] / examples[group], wilson_interval(hits[group], examples[group])
            found.append(GroupAccuracy(kind, group, examples[group], share, interval))
    return found


def worst(groups: Sequence[GroupAccuracy], at_least: int = 20) -> GroupAccuracy | None:
    """The group with the lowest accuracy, the first of equal ones, among those with enough examples to say so."""
    return min((group for group in groups if group.examples >= at_least), key=lambda each: each.accuracy, default=None)


def _length(words: Sequence[str]) -> str:
    low = 0
    for high in _LENGTH_BANDS:
        if len(words) <= high:
            return f"{low} to {high} words"
        low = high + 1
    return f"over {_LENGTH_BANDS[-1]} words"


def _negation(texts: Sequence[Sequence[str]]) -> str:
    negated = [any(map(_negates, words)) for words in texts]
    if not any(negated):
        return "no negation"
    if len(texts) == 1:
        return "negation"
    if all(negated):
        return "negation in both texts"
    return "negation in the first text" if negated[0] else "negation in the second text"


def _negates(word: str) -> bool:
    return word in _NEGATIONS or word.endswith("n't")


def _rarity(words: Sequence[str], frequency: Mapping[str, int]) -> str:
    rare = sum(frequency.get(word, 0) < RARE_BELOW for word in words)
    if not rare:
        return "none"
    return "up to 20 %" if 5 * rare <= len(words) else "over 20 %"


def _check_length(kind: str, groups: Sequence[str], examples: int) -> None:
    if len(groups) != examples:
        raise DataError(f"expected one group of the kind {kind!r} an example; got {len(groups)} for {examples}.")


def _natural(name: str) -> list[str | int]:
    # Numbers sort by value: "6 to 10 words" before "11 to 20 words". Odd places hold numbers, even ones text.
    return [int(part) if part.isdecimal() else part for part in regex.split(r"(\d+)", name)]


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
