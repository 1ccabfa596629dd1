"""Goals: what a right answer is, for one label a text, several labels a text, or a label a word.

Searches know margins only. So a goal turns what the model answers into outputs of which one, `label`, is right:

- one label a text: the logits of the labels, as they are.
- several labels a text: the answer is right if all labels of the text are predicted and no others (a label is
  predicted where its logit is above 0). The margin is that of the label that is nearest to being wrong.
- a label a word: each named entity is an example of its own. Its type is that of the labels of its words, without the
  prefixes B-, I- and the like, and the answer is right if every word of it is predicted to have that type. The margin
  is that of the word that is nearest to another type, or to none. A changed word keeps its label.

Of the last two, the outputs are two, right and wrong, and their logits are the margin and 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rosewood.attacks.runner.scores import Floats

Outputs = tuple[float, ...]
RIGHT, WRONG = "right", "wrong"


class Goal:
    """The right answer for one example."""

    label: int = 0

    def outputs(self, answer: Floats) -> Outputs:
        """Logits of which that of `label` should be the highest."""
        return float(self.margin(torch.from_numpy(answer.astype(np.float64)))), 0.0

    def predicted(self, answer: Floats) -> tuple[int, ...]:
        """The numbers of the labels that the model gives, where one output does not tell them."""
        return ()

    def expected(self) -> tuple[int, ...]:
        """The numbers of the labels that it should give."""
        return ()

    def words(self) -> tuple[int, ...]:
        """The words that the answer is about, if not the whole text."""
        return ()

    def margin(self, answer: Tensor) -> Tensor:
        """By how much the answer is right: below 0 it is wrong. It has a gradient."""
        raise NotImplementedError


@dataclass(frozen=True)
class OneLabel(Goal):
    """The answer is the logits of the labels, `(labels,)`."""

    label: int

    def outputs(self, answer: Floats) -> Outputs:
        return tuple(np.asarray(answer).tolist())

    def margin(self, answer: Tensor) -> Tensor:
        others = torch.cat([answer[: self.label], answer[self.label + 1 :]])
        return answer[self.label] - others.max()


@dataclass(frozen=True)
class LabelSet(Goal):
    """The answer is a logit for each label, `(labels,)`."""

    right: tuple[bool, ...]

    def margin(self, answer: Tensor) -> Tensor:
        signs = torch.tensor([1.0 if each else -1.0 for each in self.right], dtype=answer.dtype, device=answer.device)
        return (signs * answer).min()

    def predicted(self, answer: Floats) -> tuple[int, ...]:
        return tuple(np.flatnonzero(answer > 0).tolist())

    def expected(self) -> tuple[int, ...]:
        return tuple(number for number, right in enumerate(self.right) if right)


@dataclass(frozen=True)
class EntityType(Goal):
    """The answer is the logits of the labels for each word, `(words, labels)`; NaN where the model does not see a word.

    An entity that the model does not see at all, because it was left out or cut off, has the margin 0.
    """

    places: tuple[int, ...]
    """The words of the entity."""
    own: tuple[int, ...]
    """Their labels."""
    of_type: tuple[bool, ...]
    """Of each label, whether it is one of the entity's type."""

    def margin(self, answer: Tensor) -> Tensor:
        words = answer[list(self.places)]
        words = words[~words[:, 0].isnan()]
        if not len(words):
            return 0 * answer.nan_to_num().sum()
        right = torch.tensor(self.of_type, device=answer.device)
        return (words[:, right].amax(dim=1) - words[:, ~right].amax(dim=1)).min()

    def predicted(self, answer: Floats) -> tuple[int, ...]:
        seen = [answer[at] for at in self.places if not np.isnan(answer[at, 0])]
        return tuple(int(word.argmax()) for word in seen)

    def expected(self) -> tuple[int, ...]:
        return self.own

    def words(self) -> tuple[int, ...]:
        return self.places


OUTSIDE = "o"
_PREFIXES = ("b-", "i-", "e-", "s-", "l-", "u-")


def type_of(label: str) -> str:
    """The type in the name of a label: PER of B-PER."""
    return label[2:] if label[:2].lower() in _PREFIXES else label


def entities(labels: Sequence[int], names: Sequence[str]) -> Iterator[EntityType]:
    """The entities of a text with a label for each word: words in a row of one type, or from a B- on.

    The label O is no entity. Where no label is called O, as with parts of speech, each word is an entity of its own.
    """
    has_outside = any(name.lower() == OUTSIDE for name in names)
    types = [type_of(name) for name in names]
    # A negative label, which losses leave out, is no entity either.
    kinds = ["" if label < 0 or types[label].lower() == OUTSIDE else types[label] for label in labels]
    start = 0
    while start < len(labels):
        end, kind = start + 1, kinds[start]
        while has_outside and end < len(labels) and kinds[end] == kind and not _begins(names[labels[end]]):
            end += 1
        if kind:
            yield EntityType(tuple(range(start, end)), tuple(labels[start:end]), tuple(each == kind for each in types))
        start = end


def _begins(label: str) -> bool:
    return label[:2].lower() in ("b-", "s-", "u-")


def goal_of(label: Any) -> Goal:
    """The goal of an example with this label: a number, or a 0 or 1 for each label."""
    return OneLabel(label) if isinstance(label, int) else LabelSet(tuple(bool(each) for each in label))
