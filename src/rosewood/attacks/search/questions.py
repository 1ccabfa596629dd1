"""What an attack and the engine say to each other: candidates go out, scores come back."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from rosewood.attacks.search.resources import Resources
from rosewood.data.words import Words

Floats = NDArray[np.float64]
Candidate = tuple[str, ...]
"""A word for each word of the text; an empty one is left out."""


class Question(NamedTuple):
    """Candidates to score. Moves are results the attack stands by: the first that the model gets wrong ends it."""

    candidates: Sequence[Candidate]
    moves: bool = False


def probe(candidates: Sequence[Candidate]) -> Question:
    """Ask only; a wrong answer of the model ends nothing (a word was left out, say, to see what it is worth)."""
    return Question(candidates)


def move(candidates: Sequence[Candidate]) -> Question:
    """Ask whether one of these, best first, is a success."""
    return Question(candidates, moves=True)


class Scores:
    """What the model says of some candidates; `label` is the right class of the example."""

    def __init__(self, logits: Floats, label: int) -> None:
        self.logits = logits  # (candidates, classes)
        self._label = label

    def __len__(self) -> int:
        return len(self.logits)

    @cached_property
    def probabilities(self) -> Floats:
        """Class probabilities, `(candidates, classes)`."""
        return np.asarray(softmax(self.logits, axis=1))

    @property
    def of_label(self) -> Floats:
        """The probability of the right class, `(candidates,)`."""
        return self.probabilities[:, self._label]

    @cached_property
    def margin(self) -> Floats:
        """The logit of the right class less the highest other one, `(candidates,)`."""
        return self.logits[:, self._label] - np.delete(self.logits, self._label, axis=1).max(axis=1)

    @cached_property
    def predictions(self) -> NDArray[np.int64]:
        """The most probable class, `(candidates,)`; a tie goes to the first."""
        return self.logits.argmax(axis=1)

    @property
    def wrong(self) -> NDArray[np.bool_]:
        """Whether the model is wrong, `(candidates,)`."""
        return self.predictions != self._label


@dataclass(frozen=True)
class Target:
    """One correctly classified example, as an attack sees it."""

    text: Words
    label: int
    clean: Scores  # of the text as it is: one candidate
    resources: Resources
    rng: np.random.Generator  # depends on the seed and the texts alone

    @property
    def words(self) -> Candidate:
        """The words that reach the model: what truncation cuts off is not worth a query."""
        return self.text.words


Search = Generator[Question, Scores, None]
