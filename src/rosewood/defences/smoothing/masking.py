"""Masked words: RanMASK (Zeng et al. 2021), after the randomized ablation of Levine and Feizi (2020).

Of the h words of a text k are kept, chosen at random, and the others masked. A text that differs from it in d words has
the same copies wherever none of the d is kept, that is, with probability C(h-d, k) / C(h, k). So

    p' >= p - beta Delta,   Delta = 1 - C(h-d, k) / C(h, k)      (the theorem of RanMASK on certified robustness)

where beta is the probability that a copy of the text gets its label, given that one of the d words is kept. Deviation:
RanMASK estimates beta from changes at random places. An attacker chooses the places, so that this is no bound; here
beta is 1, as in Levine and Feizi's Theorem 1. At least one word is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb

import numpy as np

from rosewood.defences.smoothing.noise import Edit, Noise, joined, words_of
from rosewood.models.scoring import Row
from rosewood.words.masking import kept_words


@dataclass(frozen=True)
class Masking(Noise):
    """Some words of every copy are masked, the same number in all copies of a text."""

    share: float
    mask: str
    """What is written in place of a word."""

    def kept(self, words: int) -> int:
        """How many of so many words a copy keeps."""
        return kept_words(words, self.share)

    def copies(self, row: Row, count: int, rng: np.random.Generator) -> list[Row]:
        fields = words_of(row)
        words = [word for field in fields for word in field]
        masked = len(words) - self.kept(len(words))
        hidden = rng.random((count, len(words))).argsort(axis=1)[:, :masked]
        found = []
        for places in hidden.tolist():
            copy = list(words)
            for place in places:
                copy[place] = self.mask
            found.append(joined(fields, copy))
        return found

    def radii(self, row: Row, p: float) -> dict[Edit, int]:
        words = sum(map(len, words_of(row)))
        kept = self.kept(words)
        radius = 0
        while radius < words and p - 1 + comb(words - radius - 1, kept) / comb(words, kept) > 0.5:
            radius += 1
        return {"changed": radius}
