"""TextBugger (Li et al., NDSS 2019), the black-box form: one bug in each of the most important words.

Words are taken by importance, which is what the margin loses when the word is left out. For each, the five bugs of the
paper are tried and the one that lowers the margin most is kept: a space within the word (of fewer than six letters), a
letter deleted, two letters swapped (never the first or last), a letter replaced by one that looks like it or by its
neighbour on the keyboard, or the word replaced by one of its five nearest in a lexicon.

Deviations: a bug that does not lower the margin is not kept (the paper keeps every one); sentences are not ranked
before words; the paper's own look-alikes ("@" for "a") are tried beside letters of other alphabets; substitutes come
from the given lexicon (the paper takes neighbours in GloVe); the paper bounds the similarity of the two texts by 0.8
and has no budget, here edits and words have one; p_y, as published, is `scores: probability`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Annotated, Literal

from pydantic import Field

from rosewood.attacks.runner.attack import Descent, WordSubstitution
from rosewood.attacks.runner.scores import Measure
from rosewood.attacks.runner.search import Resources, Search, Target, by_importance
from rosewood.errors import RecipeError
from rosewood.words.noise import Slip, drop, homoglyph, inside, look_alike, neighbour_key, space, swap
from rosewood.words.text import replaced

BUGS: tuple[Slip, ...] = (inside(drop), inside(swap), look_alike, homoglyph, neighbour_key)
LONGEST_SPLIT = 5
"""A longer word could fall into two words that make sense."""


@dataclass(frozen=True)
class TextBugger(WordSubstitution):
    """One bug, of a letter or a whole word, in each of the words that matter most."""

    max_edits: Annotated[int, Field(ge=1)] = 30
    """Bugs in a text, at most; each is in a word of its own."""
    max_words_share: Annotated[float, Field(gt=0, le=1)] = 0.2
    """Share of the words changed, at most; one word is always allowed."""
    neighbours: Annotated[int, Field(ge=0)] = 5
    """Words of the lexicon that are tried for a word; 0: letters only, without a lexicon."""
    tries: Annotated[int, Field(ge=0)] = 1
    """Bugs of each kind of letters that are tried on a word; 0: words of the lexicon only."""
    scores: Literal["margin", "probability"] = "margin"
    """What is lowered: the margin, on a scale that the model's confidence does not change; or p_y, as published."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.tries and not self.neighbours:
            raise RecipeError("textbugger: tries=0 and neighbours=0 leave nothing to try; set one of them to 1 or more")

    def measure(self) -> Measure:
        return self.scores

    def needs(self) -> dict[str, str]:
        return super().needs() if self.neighbours else {}

    def changeable(self, words: Sequence[str], resources: Resources) -> int:
        """Words with letters, whatever their language; without bugs of letters, words that the lexicon knows."""
        return sum(map(_has_letters, words)) if self.tries else super().changeable(words, resources)

    def search(self, target: Target) -> Search:
        if not any(map(_has_letters, target.words)):
            return
        surface = self.surface(target) if self.neighbours else [()] * len(target.words)
        if not self.tries and not any(surface):
            return
        order = yield from by_importance(target)
        rng = Random(int(target.rng.integers(2**63)))
        edits = min(self.max_edits, max(1, int(self.max_words_share * len(target.words))))
        now = Descent.begin(target)
        for at in order:
            bugs = [*self._misspelt(target.words[at], rng), *surface[at][: self.neighbours]]
            kept = yield from now.step([replaced(now.words, at, each) for each in dict.fromkeys(bugs)])
            edits -= kept is not None
            if not edits:
                return

    def _misspelt(self, word: str, rng: Random) -> list[str]:
        if not _has_letters(word):
            return []
        bugs = BUGS if len(word) > LONGEST_SPLIT else (space, *BUGS)
        tried = [bug(word, rng, 1) for bug in bugs for _ in range(self.tries)]
        return [each for each in tried if each != word]


def _has_letters(word: str) -> bool:
    return sum(map(str.isalpha, word)) > 1
