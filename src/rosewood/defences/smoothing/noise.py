"""What a random change of a text is: how copies are drawn, and how far a vote over them can be trusted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Literal

import numpy as np

from rosewood.models.scoring import Row

Edit = Literal["changed", "inserted", "deleted", "edited", "synonyms"]
"""What may be done to a word: another one in its place, whatever it is; a new one; none; any of these three; a synonym
in its place, of the lexicon that the copies are drawn with."""


class Noise:
    """Random copies of a text, and the theorem about the label that most copies get.

    Below, p is the probability that a copy of the text gets that label, and p' that of a changed text. If p' is above
    1/2 for every text within reach, then no such text changes the answer.
    """

    def copies(self, row: Row, count: int, rng: np.random.Generator) -> list[Row]:
        """So many copies of the texts of an example, drawn on their own."""
        raise NotImplementedError

    def radii(self, row: Row, p: float) -> dict[Edit, int]:
        """How many words may be changed in each way: within that, p' is above 1/2. `p` is a lower bound of p."""
        raise NotImplementedError


def generator(seed: int, row: Row, purpose: str = "") -> np.random.Generator:
    """Random numbers that depend on the seed and the texts alone: the same text gets the same copies in any batch."""
    named = repr((seed, purpose, *row)) if purpose else repr((seed, *row))
    return np.random.default_rng(int.from_bytes(sha256(named.encode()).digest()[:16], "little"))


def words_of(row: Row) -> list[list[str]]:
    """The words of each text: what is between spaces. How many spaces, and which, decides nothing."""
    return [text.split() for text in row]


def joined(fields: Sequence[Sequence[str]], words: Iterable[str]) -> Row:
    """The texts with these words in place of their own, in the order of the fields; an empty one is left out."""
    left = iter(words)
    return tuple(" ".join(word for word in (next(left) for _ in field) if word) for field in fields)
