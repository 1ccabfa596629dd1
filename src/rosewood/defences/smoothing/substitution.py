"""Words replaced by synonyms: SAFER (Ye, Gong and Liu 2020).

In a copy every word x is drawn from P_x, itself and its synonyms, each as likely as the others. Let x' be a synonym of
x. Copies of x and x' are equal with probability

    q_x = min over x' of |P_x and P_x'| / max(|P_x|, |P_x'|)

at least, if both are drawn as alike as can be. With R words replaced, those with the smallest q,

    p' >= p - q_X,   q_X = 1 - product of the R smallest q_x      (SAFER's theorem on certified lower bounds)

Deviations: SAFER makes all P_x equally large; here the larger of the two divides, which is the same for equal ones and
holds for all. The synonyms are those of the lexicon as it is, in the case of the word, not SAFER's clusters of them;
`share` below 1 leaves a word as it is with probability 1 - share, and q_x is then that of the mixture. The certificate
is about these synonyms only: any other word in place of one is not covered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np
import regex

from rosewood.defences.smoothing.noise import Edit, Noise
from rosewood.models.scoring import Row
from rosewood.words.text import WORD, Words, with_case_of


@dataclass(frozen=True)
class Substitution(Noise):
    """Every word of every copy is drawn from its synonyms and itself, or left alone with probability 1 - `share`."""

    share: float
    synonyms: Mapping[str, Sequence[str]] = field(hash=False)
    _choices: dict[str, tuple[str, ...]] = field(default_factory=dict, init=False, repr=False, compare=False)
    _overlaps: dict[str, float] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # A synonym that is not one word would change which words the text has.
        single = {
            word: tuple(each for each in found if regex.fullmatch(WORD, each)) for word, found in self.synonyms.items()
        }
        object.__setattr__(self, "synonyms", single)

    def choices(self, word: str) -> tuple[str, ...]:
        """The word, and what may be drawn in its place."""
        if word not in self._choices:
            found = self.synonyms.get(word) or self.synonyms.get(word.lower(), ())
            self._choices[word] = tuple(dict.fromkeys((word, *(with_case_of(each, word) for each in found))))
        return self._choices[word]

    def distribution(self, word: str) -> dict[str, float]:
        """What is drawn in place of a word, and how often."""
        choices = self.choices(word)
        chance = dict.fromkeys(choices, self.share / len(choices))
        return chance | {word: chance[word] + 1 - self.share}

    def copies(self, row: Row, count: int, rng: np.random.Generator) -> list[Row]:
        texts = [Words.split(text) for text in row]
        drawn = []
        for text in texts:
            columns = [self._drawn(word, count, rng) for word in text.words]
            drawn.append([text.join(words) for words in zip(*columns, strict=True)] or [text.join(())] * count)
        return list(zip(*drawn, strict=True))

    def _drawn(self, word: str, count: int, rng: np.random.Generator) -> list[str]:
        choices = self.choices(word)
        places = rng.integers(len(choices), size=count)
        if self.share < 1:
            places = np.where(rng.random(count) < self.share, places, 0)
        return [choices[place] for place in places.tolist()]

    def radii(self, row: Row, p: float) -> dict[Edit, int]:
        words = [word for text in row for word in Words.split(text).words]
        smallest = sorted(self.overlap(word) for word in words if len(self.choices(word)) > 1)
        radius = 0
        while radius < len(smallest) and p - 1 + prod(smallest[: radius + 1]) > 0.5:
            radius += 1
        return {"synonyms": radius}

    def overlap(self, word: str) -> float:
        """q_x: how likely a word and its most different synonym can be drawn the same."""
        if word not in self._overlaps:
            own = self.distribution(word)
            others = [self.distribution(synonym) for synonym in self.choices(word)[1:]]
            shared = (sum(min(chance, other.get(each, 0.0)) for each, chance in own.items()) for other in others)
            self._overlaps[word] = min(shared)
        return self._overlaps[word]
