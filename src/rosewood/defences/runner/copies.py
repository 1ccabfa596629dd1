"""Random copies of a text, with words masked, deleted or replaced, and how far a vote over them can be trusted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import comb, prod
from typing import Literal

import numpy as np
import regex

from rosewood.models.scoring import Row
from rosewood.tensors.draws import seed_from
from rosewood.words.text import WORD, Words, kept_words, with_case_of

Edit = Literal["changed", "inserted", "deleted", "edited", "synonyms"]
"""What may be done to a word: another one in its place, whatever it is; a new one; none; any of these three; a synonym
in its place, of the lexicon that the copies are drawn with."""


class TextNoise:
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
    return np.random.default_rng(seed_from(seed, *([purpose] if purpose else []), *row, size=16))


def words_of(row: Row) -> list[list[str]]:
    """The words of each text: what is between spaces. How many spaces, and which, decides nothing."""
    return [text.split() for text in row]


def joined(fields: Sequence[Sequence[str]], words: Iterable[str]) -> Row:
    """The texts with these words in place of their own, in the order of the fields; an empty one is left out."""
    left = iter(words)
    return tuple(" ".join(word for word in (next(left) for _ in field) if word) for field in fields)


@dataclass(frozen=True)
class MaskNoise(TextNoise):
    """Some words of every copy are masked, the same number in all copies of a text.

    Masked words: RanMASK (Zeng et al. 2021), after the randomized ablation of Levine and Feizi (2020).

    A text has h words. k of them, chosen at random, are kept; the others are masked. A text that differs in d words
    has the same copies wherever none of the d is kept, that is, with probability C(h-d, k) / C(h, k). So

        p' >= p - beta Delta,   Delta = 1 - C(h-d, k) / C(h, k)      (the theorem of RanMASK on certified robustness)

    where beta is the probability that a copy of the text gets its label, given that one of the d words is kept.
    Deviation: RanMASK estimates beta from changes at random places. An attacker chooses the places, so that this is no
    bound; here beta is 1, as in Levine and Feizi's Theorem 1. At least one word is kept.
    """

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


LARGEST = 100
"""Where the search for a radius ends."""
Mix = tuple[int, int, int]
"""Words inserted, deleted and substituted."""


@dataclass(frozen=True)
class DeleteNoise(TextNoise):
    """Each word of every copy is left out with a probability of `share`, above 0.

    Deleted words: CERT-ED (Huang et al. 2024), which brings RS-Del (Huang et al. 2023) to text.

    A copy loses each word with probability q, on its own. Let x' come from x by i insertions, d deletions and s
    substitutions. A copy of x that keeps none of the d + s words that go is a copy of x' too, and the ratio of its two
    probabilities is q^(|x'| - |x|) = q^(i-d). Copies that keep one of them have a probability of 1 - q^(d+s) together.
    So

        p' >= q^(i-d) (p - 1 + q^(d+s))      (RS-Del's bound by the longest common subsequence)

    Any mix of r edits leaves p' above 1/2 if the worst does, which is r substitutions: q^r > 3/2 - p, the radius of
    CERT-ED for the edit distance, r = floor(log(3/2 - p) / log q). Deviation: all mixes of edits are tried, and a p' of
    exactly 1/2 is not enough. Insertions alone, and deletions alone, have radii of their own.
    """

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


@dataclass(frozen=True)
class SubstituteNoise(TextNoise):
    """Every word of every copy is drawn from its synonyms and itself, or left alone with probability 1 - `share`.

    Words replaced by synonyms: SAFER (Ye, Gong and Liu 2020).

    In a copy every word x is drawn from P_x, itself and its synonyms, each as likely as the others. Let x' be a synonym
    of x. Copies of x and x' are equal with probability

        q_x = min over x' of |P_x and P_x'| / max(|P_x|, |P_x'|)

    at least, if both are drawn as alike as can be. With R words replaced, those with the smallest q,

        p' >= p - q_X,   q_X = 1 - product of the R smallest q_x      (SAFER's theorem on certified lower bounds)

    Deviations: SAFER makes all P_x equally large; here the larger of the two divides, which is the same for equal ones
    and holds for all. The synonyms are those of the lexicon as it is, in the case of the word, not SAFER's clusters of
    them; `share` below 1 leaves a word as it is with probability 1 - share, and q_x is then that of the mixture. The
    certificate is about these synonyms only: any other word in place of one is not covered.
    """

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
