"""Deleted words: CERT-ED (Huang et al. 2024), which brings RS-Del (Huang et al. 2023) to text.

A copy loses each word with probability q, on its own. Let x' come from x by i insertions, d deletions and s
substitutions. A copy of x that keeps none of the d + s words that go is a copy of x' too, and the ratio of its two
probabilities is q^(|x'| - |x|) = q^(i-d). Copies that keep one of them have a probability of 1 - q^(d+s) together. So

    p' >= q^(i-d) (p - 1 + q^(d+s))      (RS-Del's bound by the longest common subsequence)

Any mix of r edits leaves p' above 1/2 if the worst does, which is r substitutions: q^r > 3/2 - p, the radius of CERT-ED
for the edit distance, r = floor(log(3/2 - p) / log q). Deviation: all mixes of edits are tried, and a p' of exactly 1/2
is not enough. Insertions alone, and deletions alone, have radii of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from rosewood.defences.smoothing.noise import Edit, Noise, joined, words_of
from rosewood.models.scoring import Row

LARGEST = 100
"""Where the search for a radius ends."""
Mix = tuple[int, int, int]
"""Words inserted, deleted and substituted."""


@dataclass(frozen=True)
class Deletion(Noise):
    """Each word of every copy is left out with a probability of `share`, above 0."""

    share: float

    def copies(self, row: Row, count: int, rng: np.random.Generator) -> list[Row]:
        fields = words_of(row)
        words = np.array([word for field in fields for word in field], dtype=object)
        kept = rng.random((count, len(words))) >= self.share
        return [joined(fields, np.where(each, words, "").tolist()) for each in kept]

    def after(self, p: float, edits: Mix) -> float:
        """A lower bound of p' after these edits."""
        inserted, deleted, substituted = edits
        return self.share ** (inserted - deleted) * (p - 1 + self.share ** (deleted + substituted))

    def radii(self, row: Row, p: float) -> dict[Edit, int]:
        words = sum(map(len, words_of(row)))
        return {
            "edited": self._radius(p, lambda edits: mixes(edits, words), LARGEST),
            "changed": self._radius(p, lambda edits: [(0, 0, edits)], words),
            "inserted": self._radius(p, lambda edits: [(edits, 0, 0)], LARGEST),
            "deleted": self._radius(p, lambda edits: [(0, edits, 0)], words),
        }

    def _radius(self, p: float, ways: Callable[[int], Iterable[Mix]], largest: int) -> int:
        radius = 0
        while radius < largest and all(self.after(p, edits) > 0.5 for edits in ways(radius + 1)):
            radius += 1
        return radius


def mixes(edits: int, words: int) -> Iterator[Mix]:
    """Every mix of so many edits in a text of so many words."""
    for touched in range(min(edits, words) + 1):
        for deleted in range(touched + 1):
            yield edits - touched, deleted, touched - deleted
