"""What an attack and the engine say to each other: candidates go out, scores come back."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rosewood.attacks.search.resources import Resources
from rosewood.attacks.search.scores import Scores
from rosewood.data.words import Words

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
