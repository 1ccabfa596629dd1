"""BAE (Garg and Ramakrishnan, EMNLP 2020): a masked language model replaces words, or puts words beside them.

Words are taken by importance. A word is covered by a mask (R), or a mask is put before and after it (I), and the
likeliest words for the mask are the candidates. Of those whose text stays similar enough to the original, one that
makes the model wrong ends the search (the most similar, if there are several); else the one that lowers the margin most
is kept. The four forms of the paper: `R` replaces, `I` inserts, `R/I` does what is better at each word, and `R+I`
replaces and then inserts beside the new word.

Deviations: similarity is the cosine of the given sentence encoder to the original text (the paper: Universal Sentence
Encoder, to the text before the step), so that thresholds do not carry over; the check of the part of speech of R needs
a tagger of yours and is off by default; stop words stay, as in TextAttack's version; a word takes on the case of the
word it replaces; a candidate is kept only if it lowers the margin below what it is by then; p_y, as published, is
`scores: probability`. An inserted word belongs to its neighbour: both count as one changed word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from rosewood.attacks.runner.attack import Descent, MeaningBounds
from rosewood.attacks.runner.scores import Measure
from rosewood.attacks.runner.search import Candidate, Resources, Search, Target, by_importance
from rosewood.words.constraints import is_stop_word
from rosewood.words.text import replaced, with_case_of

MASK = "\ue000"  # of no script
STEPS = {"R": ("R",), "I": ("I",), "R/I": ("RI",), "R+I": ("R", "I")}
"""What is tried at a word: the operations of each step."""


@dataclass(frozen=True)
class Bae(MeaningBounds):
    """Greedy replacement and insertion by importance, with the words of a masked language model."""

    form: Literal["R", "I", "R/I", "R+I"] = "R"
    candidates: Annotated[int, Field(ge=1)] = 50
    """Words tried in a place, at most; an insertion has two places."""
    min_similarity: Annotated[float, Field(ge=-1, le=1)] | None = 0.8
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

    def needs(self) -> dict[str, str]:
        return {
            "masked_lm": "bae takes words from a masked language model: pass one, such as "
            'masked_lm=MaskedLM.load("bert-base-uncased"), on the command line --masked-lm bert-base-uncased'
        } | super().needs()

    def changeable(self, words: Sequence[str], resources: Resources) -> int:
        return len([word for word in words if self._may_change(word)])

    def search(self, target: Target) -> Search:
        if not any(map(self._may_change, target.words)):
            return
        order = yield from by_importance(target)
        now = Descent.begin(target)
        for at in order:
            if not self._may_change(target.words[at]):
                continue
            for operations in STEPS[self.form]:
                written = [each for one in operations for each in self._written(one, now.words, at, target)]
                tried = [replaced(now.words, at, each) for each in written]
                yield from now.similar_step(tried, at, self.min_similarity, self.similarity_window)

    def _written(self, operation: str, words: Candidate, at: int, target: Target) -> list[str]:
        """What may replace a word, by a replacement or an insertion."""
        masked_lm = target.resources.masked_lm
        assert masked_lm is not None
        word = words[at]
        forms = [MASK] if operation == "R" else [f"{MASK} {word}", f"{word} {MASK}"]
        parts = [target.text.join(replaced(words, at, form)).partition(MASK) for form in forms]
        found = masked_lm.fill([(before, after) for before, _, after in parts], self.candidates)
        if operation == "I":
            return [form.replace(MASK, each) for form, own in zip(forms, found, strict=True) for each in own]
        new = dict.fromkeys(with_case_of(each, word) for each in found[0] if each.lower() != word.lower())
        return [each for each in new if self._same_part_of_speech(words, at, each, target.resources)]

    def _same_part_of_speech(self, words: Candidate, at: int, new: str, resources: Resources) -> bool:
        if not self.same_part_of_speech:
            return True
        assert resources.tagger is not None
        return resources.tagger(words)[at] == resources.tagger(replaced(words, at, new))[at]

    def _may_change(self, word: str) -> bool:
        return any(map(str.isalpha, word)) and not (self.skip_stop_words and is_stop_word(word))
