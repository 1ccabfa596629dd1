"""Typos where they hurt: a few slips of the finger in the most important words, like DeepWordBug (Gao et al. 2018).

Words are taken by importance. For each, some slips are drawn (two letters swapped, one dropped, inserted, the
neighbouring key, a look-alike letter) and the one that lowers the margin most is kept, until the model is wrong or as
many letters or words have changed as a reader would put up with. Deviations from the paper: importance is what the
margin loses when the word is left out, all kinds of slips are tried on each word, and a slip that does not lower the
margin is not kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Annotated

from pydantic import Field

from rosewood.attacks.runner.attack import Attack, Descent
from rosewood.attacks.runner.search import Resources, Search, Target, by_importance
from rosewood.words.noise import Slip, drop, homoglyph, insert, neighbour_key, swap
from rosewood.words.text import replaced

LETTERS_CHANGED: dict[Slip, int] = {swap: 2, drop: 1, insert: 1, neighbour_key: 1, homoglyph: 1}


@dataclass(frozen=True)
class Typos(Attack):
    """A few slips of the finger in the words that matter most."""

    max_letters: Annotated[int, Field(ge=1)] = 30
    """Letters changed in a text, at most; a swap counts as two."""
    max_words_share: Annotated[float, Field(gt=0, le=1)] = 0.2
    """Share of the words changed, at most; one word is always allowed."""
    min_word_letters: Annotated[int, Field(ge=3)] = 3
    first_letter: bool = False
    """Whether the first letter of a word may change: readers hang on it."""
    tries: Annotated[int, Field(ge=1)] = 2
    """Slips of each kind that are tried on a word."""

    def search(self, target: Target) -> Search:
        if not any(map(self._long_enough, target.words)):
            return
        order = yield from by_importance(target)
        rng = Random(int(target.rng.integers(2**63)))
        letters, words = self.max_letters, max(1, int(self.max_words_share * len(target.words)))
        now = Descent.begin(target)
        for at in order:
            costs = self._slips(now.words[at], rng, letters)
            kept = yield from now.step([replaced(now.words, at, word) for word in costs])
            if kept is not None:
                letters, words = letters - costs[now.words[at]], words - 1
            if not (letters and words):
                return

    def changeable(self, words: Sequence[str], resources: Resources) -> int:
        return sum(map(self._long_enough, words))

    def _slips(self, word: str, rng: Random, letters: int) -> dict[str, int]:
        """Misspelt word -> letters that differ, for words and slips that the budget allows."""
        if not self._long_enough(word):
            return {}
        first = 0 if self.first_letter else 1
        found = {
            slip(word, rng, first): cost
            for slip, cost in LETTERS_CHANGED.items()
            if cost <= letters
            for _ in range(self.tries)
        }
        return {other: cost for other, cost in found.items() if other != word}

    def _long_enough(self, word: str) -> bool:
        return sum(map(str.isalpha, word)) >= self.min_word_letters
