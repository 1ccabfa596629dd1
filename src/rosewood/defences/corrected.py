"""Typing that is repaired before the classifier reads it: invisible characters, homoglyphs and misspelt words.

What counts as right is what the training texts have. A character that they do not have is removed if it is invisible,
and replaced if it looks like one that they have (Unicode's list of confusable characters, and its compatibility forms).
A word that neither they nor the tokenizer know becomes the nearest of their words, if that is near enough: the fewest
letters inserted, left out, changed or swapped with their neighbour, then the same first letter, then the most frequent.
After Pruthi et al. (2019), who put a word recogniser before the classifier; here the recogniser needs no training.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import regex
from confusable_homoglyphs.confusables import confusables_data
from pydantic import Field
from rapidfuzz import process
from rapidfuzz.distance import OSA

from rosewood.defences.smoothed import scored
from rosewood.models.defended import Defence, Floats, Learnt, Material, Shield
from rosewood.models.scoring import Row, Scorer
from rosewood.words.text import WORD, Words, with_case_of

LONG = 8
"""Letters from which on a word may be as far as `max_distance` from the right one; shorter ones may be 1."""
_INVISIBLE = regex.compile(r"[\p{Cf}\p{Cc}\p{Variation_Selector}]")
_RUBBED_OUT = regex.compile(r"[^\x08]\x08")  # a character and the backspace that hides it


@dataclass(frozen=True)
class Corrected(Defence):
    """A front end that repairs typing: invisible characters, homoglyphs and misspelt words."""

    spelling: bool = True
    """Whether words are corrected, or characters only."""
    max_distance: Annotated[int, Field(ge=1, le=3)] = 2
    """Letters by which a long word may differ from the right one; a short one may by 1."""
    min_letters: Annotated[int, Field(ge=1)] = 4
    """Shorter words stay as they are: too many others are near them."""
    min_count: Annotated[int, Field(ge=1)] = 2
    """How often the training texts must have a word for others to become it."""

    def needs(self) -> dict[str, str]:
        return {"texts": "corrected repairs texts after the training texts: name a run, or a task with --task"}

    def learn(self, base: Scorer, material: Material) -> Learnt:
        texts = [text for row in material.texts for text in row]
        counts = Counter(word.lower() for text in texts for word in Words.split(text).words)
        return {"alphabet": "".join(sorted({sign for text in texts for sign in text})), "words": dict(counts)}

    def start(self, learnt: Learnt) -> Shield:
        return Correcting(self, learnt)


class Correcting(Shield):
    """Repairs texts, and has the classifier read them."""

    def __init__(self, settings: Corrected, learnt: Learnt) -> None:
        self.settings = settings
        self._alphabet = set(learnt["alphabet"])
        self._words: dict[str, int] = learnt["words"]
        self._targets = [word for word, count in self._words.items() if count >= settings.min_count]
        self._known: set[str] | None = None  # of the tokenizer
        self._corrections: dict[str, str] = {}

    def logits(self, rows: Sequence[Row], base: Scorer) -> Floats:
        if self._known is None:
            self._known = {token.lower() for token in base.tokenizer.get_vocab()}
        return scored([tuple(map(self.repaired, row)) for row in rows], base)

    def repaired(self, text: str) -> str:
        """The text as it should have been typed."""
        while "\x08" in text and "\x08" not in self._alphabet and (shown := _RUBBED_OUT.sub("", text)) != text:
            text = shown
        text = "".join(map(self._sign, text))
        if not self.settings.spelling:
            return text
        split = Words.split(text)
        return split.join([self._word(word) for word in split.words])

    def _sign(self, sign: str) -> str:
        if sign in self._alphabet or sign.isspace():
            return sign
        if _INVISIBLE.match(sign):
            return ""
        plain = unicodedata.normalize("NFKC", sign)
        if set(plain) <= self._alphabet:
            return plain
        alike = (other["c"] for other in confusables_data.get(sign, ()))
        return next((other for other in alike if set(other) <= self._alphabet), sign)

    def _word(self, word: str) -> str:
        low = word.lower()
        if len(low) < self.settings.min_letters or low in self._words or low in (self._known or ()):
            return word
        if any(map(str.isdigit, low)) or not regex.fullmatch(WORD, low):
            return word
        if low not in self._corrections:
            self._corrections[low] = self._nearest(low)
        return with_case_of(self._corrections[low], word)

    def _nearest(self, word: str) -> str:
        """The nearest word of the training texts; the word itself if none is near enough."""
        far = self.settings.max_distance if len(word) >= LONG else 1
        found = process.extract(word, self._targets, scorer=OSA.distance, score_cutoff=far, limit=None)
        ranked = [(distance, near[0] != word[0], -self._words[near], near) for near, distance, _ in found]
        return min(ranked)[-1] if ranked else word
