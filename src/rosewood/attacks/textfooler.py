"""TextFooler (Jin et al., AAAI 2020): replace important words by substitutes that keep the meaning.

Words are taken by importance. Of the substitutes whose text stays similar enough to the original, one that makes the
model wrong ends the search (the most similar, if there are several); else the one that lowers the margin most is kept.

Deviations: the paper compares p_y, which saturates on a confident model, and so do we with `scores: probability` (for
two classes the order is the same); the lexicon is given (the paper takes 50 neighbours in counter-fitted vectors);
similarity is the cosine of the given sentence encoder (the paper: Universal Sentence Encoder), so that thresholds do
not carry over; the check of the part of speech needs a tagger of yours and is off by default, and it looks at the
original text; a substitute is kept only if it lowers the margin below what it is by then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from rosewood.attacks.runner.attack import Descent, MeaningBounds, WordSubstitution
from rosewood.attacks.runner.scores import Measure
from rosewood.attacks.runner.search import Resources, Search, Target, by_importance
from rosewood.words.constraints import Constraint, SamePartOfSpeech, without_stop_words
from rosewood.words.text import replaced


@dataclass(frozen=True)
class TextFooler(MeaningBounds, WordSubstitution):
    """Greedy word replacement by importance, within a bound on sentence similarity."""

    min_similarity: Annotated[float, Field(ge=-1, le=1)] | None = 0.84
    """Cosine of the sentence vectors of the original and the changed text; none: no bound."""
    similarity_window: Annotated[int, Field(ge=1)] = 15
    """A longer text is compared in this many words around the changed one."""
    same_part_of_speech: bool = False
    """Whether a word may be replaced only by one of its part of speech."""
    skip_stop_words: bool = True
    scores: Literal["margin", "probability"] = "margin"
    """What is lowered: the margin, on a scale that the model's confidence does not change; or p_y, as published."""

    def measure(self) -> Measure:
        return self.scores

    def constraints(self, resources: Resources) -> Sequence[Constraint]:
        chosen: list[Constraint] = [without_stop_words] if self.skip_stop_words else []
        if self.same_part_of_speech:
            assert resources.tagger is not None
            chosen.append(SamePartOfSpeech(resources.tagger))
        return chosen

    def search(self, target: Target) -> Search:
        surface = self.surface(target)
        if not any(surface):
            return
        order = yield from by_importance(target)
        now = Descent.begin(target)
        for at in order:
            tried = [replaced(now.words, at, each) for each in surface[at]]
            yield from now.similar_step(tried, at, self.min_similarity, self.similarity_window)
