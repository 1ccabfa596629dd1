"""Misspelt forms of words: what may stand in for a word when it is typed carelessly, or made to look alike."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from random import Random

from rosewood.words.typos import SLIPS


class Misspelling:
    """Gives each word the same misspelt forms wherever it occurs, some of each kind of slip.

    Args:
        kinds: Names of slips (`rosewood.words.typos.SLIPS`).
        forms: How many forms a word gets at most; forms that come out alike count once.
        min_letters: Shorter words stay as they are.
        seed: Another seed, other forms.

    Example:
        >>> Misspelling(["drop"], forms=2).surface(["a", "film"])
        [(), ('fil', 'flm')]
    """

    def __init__(self, kinds: Sequence[str], forms: int = 16, min_letters: int = 3, seed: int = 0) -> None:
        @lru_cache(maxsize=1_000_000)
        def misspelt(word: str) -> tuple[str, ...]:
            if sum(map(str.isalpha, word)) < min_letters:
                return ()
            rng = Random(f"{seed} {word}")
            found = dict.fromkeys(SLIPS[kinds[i % len(kinds)]](word, rng, 1) for i in range(forms))
            found.pop(word, None)
            return tuple(found)

        self._misspelt = misspelt

    def surface(self, words: Sequence[str]) -> list[tuple[str, ...]]:
        """The misspelt forms of each word of a text."""
        return [self._misspelt(word) for word in words]
