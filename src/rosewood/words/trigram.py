"""A small language model of three words, fitted on training text in seconds: which words fit beside which."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from hashlib import sha256
from math import log

from rosewood.errors import DataError
from rosewood.words.text import Words


class Trigram:
    """Interpolated absolute discounting over trigrams, bigrams and add-one unigrams.

    P(c | a, b) = max(n(abc) - D, 0) / n(ab) + D * kinds(ab) / n(ab) * P(c | b), where `kinds` counts the distinct
    words seen after ab, and so on down to (n(c) + 1) / (n + V). It knows the words seen at least `min_count` times.
    """

    def __init__(self, sentences: Iterable[Sequence[str]], min_count: int = 2, discount: float = 0.75) -> None:
        known = [list(sentence) for sentence in sentences]
        seen = Counter(word for sentence in known for word in sentence)
        self._words = {word: count for word, count in seen.items() if count >= min_count}
        if not self._words:
            raise DataError(
                f"a language model needs words that occur at least {min_count} times; "
                f"got {len(known)} sentences of {len(seen)} words: give it more text"
            )
        self._total = sum(self._words.values()) + len(self._words)
        self._discount = discount
        # Words the model does not know break the sequence: it never counts what stands on both sides of one.
        self._counts: Counter[tuple[str, ...]] = Counter()
        for sentence in known:
            for size in (2, 3):
                grams = zip(*(sentence[start:] for start in range(size)), strict=False)
                self._counts.update(gram for gram in grams if all(word in self._words for word in gram))
        self._follow: Counter[tuple[str, ...]] = Counter()
        self._kinds: Counter[tuple[str, ...]] = Counter()
        for gram, count in self._counts.items():
            self._follow[gram[:-1]] += count
            self._kinds[gram[:-1]] += 1

    @classmethod
    def fit(cls, texts: Iterable[str], min_count: int = 2) -> Trigram:
        """Fit on texts, in lower case."""
        return cls((Words.split(text.lower()).words for text in texts), min_count)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all counts: figures are comparable only where it is the same."""
        counted = (sorted(self._words.items()), sorted(self._counts.items()), self._discount)
        return sha256(repr(counted).encode()).hexdigest()[:16]

    def __contains__(self, word: str) -> bool:
        return word in self._words

    def logp(self, words: Sequence[str]) -> float:
        """The log-probability of known words in a row, the first ones given fewer before them."""
        return sum(log(self.probability(words[max(0, i - 2) : i + 1])) for i in range(len(words)))

    def probability(self, gram: Sequence[str]) -> float:
        """The chance of the last word of up to three, given the others."""
        gram = tuple(gram)
        before = gram[:-1]
        if not before:
            return (self._words[gram[0]] + 1) / self._total
        shorter = self.probability(gram[1:])
        follow = self._follow.get(before, 0)
        if not follow:
            return shorter
        own = max(self._counts.get(gram, 0) - self._discount, 0.0)
        return (own + self._discount * self._kinds[before] * shorter) / follow
