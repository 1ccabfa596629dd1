"""Constraints on substitutes: which words of a lexicon may replace which words of a text.

A constraint takes the words of a text and the substitutes of each, and returns those that it allows. It looks at the
original text only, so that nothing drifts. Constraints are applied one after the other.

`EnglishTagger` gives parts of speech by the rules that come in the package TextBlob, without a download.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from math import exp, log
from typing import Any, Protocol
from unicodedata import normalize

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

from rosewood.errors import AbsentError
from rosewood.words.lexicon import Lexicon
from rosewood.words.text import replaced, with_case_of

Surface = list[tuple[str, ...]]
"""The substitutes of each word of a text, without the word itself."""
Constraint = Callable[[Sequence[str], Surface], Surface]


class LanguageModel(Protocol):
    """How likely words are in a row; `rosewood.words.language_models.Trigram` is one."""

    def __contains__(self, word: str) -> bool: ...

    def logp(self, words: Sequence[str]) -> float: ...


Tagger = Callable[[Sequence[str]], Sequence[str]]
"""The part of speech of each word of a sentence, in any tag set; bring your own, such as spaCy's or NLTK's."""
Encoder = Callable[[Sequence[str]], NDArray[np.floating[Any]]]
"""One vector per text, `(texts, dimensions)`; `rosewood.words.language_models.SentenceEncoder` is one."""


@dataclass(frozen=True)
class Fluent:
    """Keep substitutes that a language model finds not much less likely than the word, in a window around it.

    The rules of Jia et al. (2019): lower case; unknown words of the context are left out; an unknown substitute is
    refused, and if the word itself is unknown every known substitute is allowed.
    """

    model: LanguageModel
    window: int = 6
    """Words on each side."""
    min_log_ratio: float = -5.0
    """How much less likely the window may become, as a difference of log-probabilities."""

    def __call__(self, words: Sequence[str], surface: Surface) -> Surface:
        lowered = [word.lower() for word in words]
        return [
            tuple(each for each in found if self._keeps(lowered, at, each.lower())) for at, found in enumerate(surface)
        ]

    def _keeps(self, words: Sequence[str], at: int, substitute: str) -> bool:
        if substitute not in self.model:
            return False
        if words[at] not in self.model:
            return True
        before = [word for word in words[max(0, at - self.window) : at] if word in self.model]
        after = [word for word in words[at + 1 : at + 1 + self.window] if word in self.model]
        gain = self.model.logp([*before, substitute, *after]) - self.model.logp([*before, words[at], *after])
        return gain >= self.min_log_ratio


@dataclass(frozen=True)
class SamePartOfSpeech:
    """Keep substitutes that the tagger, in the place of the word, gives the tag of the word."""

    tagger: Tagger

    def __call__(self, words: Sequence[str], surface: Surface) -> Surface:
        tags = self.tagger(words)
        return [
            tuple(each for each in found if self.tagger(replaced(words, at, each))[at] == tags[at])
            for at, found in enumerate(surface)
        ]


@dataclass(frozen=True)
class SameMeaning:
    """Keep substitutes that leave the sentence vector near that of the text, or of a window of a longer text."""

    encoder: Encoder
    min_similarity: float = 0.84
    """Cosine to the original."""
    window: int = 15
    """A longer text is compared in this many words around the changed one."""

    def __call__(self, words: Sequence[str], surface: Surface) -> Surface:
        return [self._kept(words, at, found) if found else () for at, found in enumerate(surface)]

    def _kept(self, words: Sequence[str], at: int, found: tuple[str, ...]) -> tuple[str, ...]:
        seen = around(at, len(words), self.window)
        texts = [" ".join(candidate[seen]) for candidate in (words, *(replaced(words, at, each) for each in found))]
        similarity = similarities(self.encoder, texts)
        return tuple(each for each, alike in zip(found, similarity, strict=True) if alike >= self.min_similarity)


def without_stop_words(words: Sequence[str], surface: Surface) -> Surface:
    """Leave words such as "the" and "not" as they are: a constraint of `Substituting`.

    Args:
        words: the words of a text.
        surface: the substitutes of each.

    Returns:
        The substitutes without those of stop words.

    Example:
        >>> without_stop_words(["not", "good"], [("never",), ("fine",)])
        [(), ('fine',)]
    """
    return [() if is_stop_word(word) else found for word, found in zip(words, surface, strict=True)]


def is_stop_word(word: str) -> bool:
    """Whether it is one of the English words that hold sentences together."""
    return word.lower() in ENGLISH_STOP_WORDS


def around(at: int, length: int, window: int) -> slice:
    """So many places around one, or all there are; near an end of the text the others are on its other side."""
    start = min(max(0, at - window // 2), max(0, length - window))
    return slice(start, start + window)


def similarities(encoder: Encoder, texts: Sequence[str]) -> NDArray[np.float64]:
    """The cosine of each text but the first to the first."""
    vectors = np.asarray(encoder(texts), dtype=np.float64)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors[1:] @ vectors[0])


@dataclass(frozen=True)
class Substituting:
    """How substitutes are found: by default words are looked up in lower case, and substitutes take on their case.

    With `exact_case` words are looked up as they are written, so that a capitalised word has no substitutes, as in some
    of the papers' code.

    Example:
        >>> from rosewood import Lexicon
        >>> Substituting(Lexicon.of({"good": ["great"]})).surface(["Good", "film"])
        [('Great',), ()]
    """

    lexicon: Lexicon
    exact_case: bool = False
    constraints: Sequence[Constraint] = ()

    def surface(self, words: Sequence[str]) -> Surface:
        """What may replace each word of a text, without the word itself; best first."""
        surface = [self.lexicon.substitutes(key) for key in self._keys(words)]
        for constraint in self.constraints:
            surface = constraint(words, surface)
        return surface if self.exact_case else [_cased(*pair) for pair in zip(words, surface, strict=True)]

    def known(self, words: Sequence[str]) -> int:
        """How many of the words have a substitute in the lexicon, whatever the constraints leave of them."""
        return sum(bool(self.lexicon.substitutes(key)) for key in self._keys(words))

    def _keys(self, words: Sequence[str]) -> Sequence[str]:
        return words if self.exact_case else [normalize("NFC", word.lower()) for word in words]


def _cased(word: str, substitutes: Sequence[str]) -> tuple[str, ...]:
    cased = dict.fromkeys(with_case_of(each, word) for each in substitutes)
    # "US" has "us" as a neighbour's neighbour: in capitals it would be the word itself.
    return tuple(each for each in cased if each != word)


@dataclass(frozen=True)
class AttackSpace:
    """Means over texts; `geometric_choices ** words` is the geometric mean of their sizes, since sizes multiply."""

    words: float
    """Substitutable words of a text."""
    choices: float
    """Choices at such a word, itself included: the arithmetic mean, as in RIFT's 6.5^4 for SNLI."""
    geometric_choices: float


def attack_space(surfaces: Iterable[Surface]) -> AttackSpace:
    """The size of the attack space of texts, from what may replace each of their words.

    Args:
        surfaces: for each text, the substitutes of each word, as `Substituting.surface` gives them.

    Returns:
        The mean number of words that have substitutes, and the arithmetic and the geometric mean of the choices at such
        a word, itself included.

    Example:
        >>> attack_space([[("fine", "great"), ()], [(), ("movie",)]])
        AttackSpace(words=1.0, choices=2.5, geometric_choices=2.449489742783178)
    """
    texts = words = substitutes = 0
    logs = 0.0
    for surface in surfaces:
        counts = [len(found) for found in surface if found]
        texts, words, substitutes = texts + 1, words + len(counts), substitutes + sum(counts)
        logs += sum(log(1 + count) for count in counts)
    if not words:
        return AttackSpace(0.0, 1.0, 1.0)
    return AttackSpace(words / texts, 1 + substitutes / words, exp(logs / words))


UNIVERSAL = {
    "NN": "NOUN",
    "VB": "VERB",
    "MD": "VERB",
    "JJ": "ADJ",
    "RB": "ADV",
    "WR": "ADV",
    "DT": "DET",
    "PD": "DET",
    "WD": "DET",
    "PR": "PRON",
    "WP": "PRON",
    "IN": "ADP",
    "TO": "PRT",
    "RP": "PRT",
    "CC": "CONJ",
    "CD": "NUM",
}
"""The first two letters of a tag of the Penn Treebank -> the universal part of speech."""


class EnglishTagger:
    """Universal parts of speech (NOUN, VERB, ADJ, ...) of the words of a sentence, in their context."""

    @classmethod
    def load(cls) -> EnglishTagger:
        """The tagger; needs rosewood[lexicon].

        Raises:
            AbsentError: TextBlob is not installed.
        """
        try:
            import textblob.en  # noqa: F401
        except ImportError:
            raise AbsentError(
                "parts of speech need TextBlob, which is not installed: pip install rosewood[lexicon]"
            ) from None
        return cls()

    @cached_property
    def fingerprint(self) -> str:
        """Tags are comparable only where it is the same."""
        return f"textblob {version('textblob')}"

    def __call__(self, words: Sequence[str]) -> list[str]:
        from textblob.en import parser  # takes a second, and most attacks need no tags

        return [UNIVERSAL.get(tag.partition("-")[0][:2], "X") for _, tag in parser.find_tags(list(words))]
