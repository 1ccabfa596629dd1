"""Typing that is repaired before the classifier reads it: invisible characters, look-alikes and misspelt words.

What counts as right is what the training texts have, and a dictionary of their language. A character that the training
texts do not have is removed if it is invisible, and replaced if it looks like one that they have (Unicode's list of
confusable characters, and its compatibility forms). Words are repaired by a noisy channel, as in Kernighan, Church and
Gale (1990): a word becomes another one that is a slip away (a letter inserted, left out, changed, or swapped with its
neighbour; a space within the word; a sign in place of a letter) if that one is so much likelier that a slip explains it
better. How likely a word is, is the mean of its frequency in the training texts and in the dictionary. A front end that
recognises words is after Pruthi et al. (2019); here it needs no training.
"""

from __future__ import annotations

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import regex
from confusable_homoglyphs.confusables import confusables_data
from pydantic import Field
from rapidfuzz import process
from rapidfuzz.distance import OSA
from spellchecker import SpellChecker

from rosewood.errors import RunError
from rosewood.models.defended import Defence, FrontEnd, Learnt, Material, Shield
from rosewood.models.scoring import Scorer
from rosewood.words.noise import LOOK_ALIKES, neighbours
from rosewood.words.text import Words, with_case_of

LONG = 8
"""Letters from which on a word may be as far as `max_distance` from the right one; shorter ones may be 1."""
COVERED, CERTAIN = 0.6, 0.85
"""Share of the words of the training texts that a dictionary has: at least, and so that no other is looked at."""
UNKNOWN = 1e-12
"""How likely a word is that neither training texts nor dictionary have."""
SELDOM = 30.0
"""How many times rarer slips are that typists seldom make."""
_LETTERS = r"(?<!\w)[^\W\d_]+(?:['’][^\W\d_]+)*(?!\w)"  # "art-house" is two words, "B2B" none
_INVISIBLE = regex.compile(r"[\p{Cf}\p{Cc}\p{Variation_Selector}]")
_RUBBED_OUT = regex.compile(r"[^\x08]\x08")  # a character and the backspace that hides it
_MEANT = {sign: letter for letter, sign in LOOK_ALIKES.items()}
_WITH_LOOK_ALIKES = regex.compile(rf"(?<![^\W_])[^\W\d_][^\W_]*(?:[{''.join(_MEANT)}][^\W_]*)+")


@dataclass(frozen=True)
class Corrected(Defence):
    """A front end that repairs typing: invisible characters, look-alikes and misspelt words."""

    spelling: bool = True
    """Whether words are corrected, or characters only."""
    language: str = "auto"
    """The dictionary beside the words of the training texts: en, de, es, fr, …, none, or the one that knows most of
    their words."""
    likelier: Annotated[float, Field(gt=1)] = 500.0
    """How many times likelier another word must be, for each letter that differs, for a word to become it."""
    max_distance: Annotated[int, Field(ge=1, le=3)] = 2
    """Letters by which a long word may differ from the right one; a short one may by 1."""
    min_letters: Annotated[int, Field(ge=1)] = 3
    """Shorter words stay as they are: too many others are near them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.language not in ("auto", "none", *SpellChecker.languages()):
            known = ", ".join(sorted(SpellChecker.languages()))
            raise RunError(f"there is no dictionary for {self.language!r}: expected auto, none, or one of {known}")

    def needs(self) -> dict[str, str]:
        return {
            "texts": "corrected repairs texts after the training texts: name a run, a task with --task, or --train-file"
        }

    def learn(self, base: Scorer, material: Material) -> Learnt:
        texts = [text for row in material.texts for text in row]
        counts = Counter(word.lower() for text in texts for word in Words.split(text, _LETTERS).words)
        language = _language_of(counts) if self.language == "auto" else self.language
        alphabet = "".join(sorted({sign for text in texts for sign in text}))
        return {"alphabet": alphabet, "words": dict(counts), "language": language}

    def start(self, learnt: Learnt) -> Shield:
        return Correcting(self, learnt)


class Correcting(FrontEnd):
    """Repairs typing."""

    def __init__(self, settings: Corrected, learnt: Learnt) -> None:
        self.settings = settings
        self._alphabet = set(learnt["alphabet"])
        self._likelihood = _likelihoods(learnt["words"], _dictionary(learnt["language"]))
        self._slips = SpellChecker(language=None, distance=1)
        self._slips.word_frequency.load_words(["a", *self._likelihood])  # for its letters
        self._by_first: dict[str, list[str]] = defaultdict(list)
        for word in self._likelihood:
            self._by_first[word[0]].append(word)
        self._corrections: dict[str, str] = {}

    def read(self, text: str) -> str:
        """The text as it should have been typed."""
        while "\x08" in text and "\x08" not in self._alphabet and (shown := _RUBBED_OUT.sub("", text)) != text:
            text = shown
        text = "".join(map(self._sign, text))
        if not self.settings.spelling:
            return text
        split = Words.split(_WITH_LOOK_ALIKES.sub(self._letters_meant, text), _LETTERS)
        split = Words.split(split.join(self._joined(split)), _LETTERS)
        return split.join([self._word(word) for word in split.words])

    def _sign(self, sign: str) -> str:
        if sign in self._alphabet or sign.isspace() or (sign.isascii() and sign.isprintable()):
            return sign
        if _INVISIBLE.match(sign):
            return ""
        plain = unicodedata.normalize("NFKC", sign)
        if set(plain) <= self._alphabet:
            return plain
        alike = (other["c"] for other in confusables_data.get(sign, ()))
        return next((other for other in alike if set(other) <= self._alphabet), sign)

    def _letters_meant(self, found: regex.Match[str]) -> str:
        """A word with signs in place of letters, "g00d" or "gre@t": with the letters, if that is a word."""
        meant = "".join(_MEANT.get(sign, sign) for sign in found[0])
        return meant if found[0].lower() not in self._likelihood and meant.lower() in self._likelihood else found[0]

    def _joined(self, split: Words) -> list[str]:
        """The words, and two that are likelier one word with a space in it as an empty one and that word."""
        words = list(split.words)
        for i, (left, right) in enumerate(zip(split.words, split.words[1:], strict=False)):
            if split.gaps[i + 1] == " " and words[i] == left:
                whole = self._likelihood.get((left + right).lower(), 0.0)
                if whole > self.settings.likelier * self._of(left) * self._of(right):
                    words[i], words[i + 1] = "", left + right
        return words

    def _word(self, word: str) -> str:
        low = word.lower()
        if len(low) < self.settings.min_letters:
            return word
        if low not in self._corrections:
            self._corrections[low] = self._likeliest(low)
        found = self._corrections[low]
        return word if found == low else with_case_of(found, word)

    def _likeliest(self, word: str) -> str:
        """The word itself, or the word near it that is so much likelier that it was meant."""
        near = dict.fromkeys(self._slips.known(self._slips.edit_distance_1(word)), 1)
        if not near and word not in self._likelihood and len(word) >= LONG:
            far = process.extract(
                word,
                self._by_first[word[0]],
                scorer=OSA.distance,
                score_cutoff=self.settings.max_distance,
                limit=None,
            )
            near = {other: distance for other, distance, _ in far}
        found = {other: self._of(other) / self._price(word, other, distance) for other, distance in near.items()}
        return max([(self._of(word), word), *((score, other) for other, score in found.items())])[1]

    def _price(self, word: str, other: str, distance: int) -> float:
        """How many times likelier another word must be: more where typists are seldom wrong.

        That is in the first letter, and in hitting a key that is not beside the right one.
        """
        changed = [(a, b) for a, b in zip(word, other, strict=False) if a != b]
        is_far = len(word) == len(other) and len(changed) == 1 and changed[0][0] not in neighbours(changed[0][1])
        return self.settings.likelier**distance * SELDOM ** (is_far + (word[0] != other[0]))

    def _of(self, word: str) -> float:
        return self._likelihood.get(word.lower(), UNKNOWN)


def _dictionary(language: str) -> Mapping[str, int]:
    return {} if language == "none" else SpellChecker(language=language).word_frequency.dictionary


def _language_of(counts: Mapping[str, int]) -> str:
    """The language whose dictionary has most of the words of the texts: the first that has nearly all, or none."""

    def covered(language: str) -> float:
        known = _dictionary(language)
        return sum(count for word, count in counts.items() if word in known) / max(1, sum(counts.values()))

    shares = {}
    for language in ("en", *sorted(set(SpellChecker.languages()) - {"en"})):
        shares[language] = covered(language)
        if shares[language] >= CERTAIN:
            return language
    best = max(shares, key=lambda language: shares[language])
    return best if shares[best] >= COVERED else "none"


def _likelihoods(*counts: Mapping[str, int]) -> dict[str, float]:
    """The mean of the words' frequencies in some lists of counts that are not empty."""
    lists = [(each, sum(each.values())) for each in counts if each]
    found: dict[str, float] = defaultdict(float)
    for each, total in lists:
        for word, count in each.items():
            found[word] += count / total / len(lists)
    return dict(found)
