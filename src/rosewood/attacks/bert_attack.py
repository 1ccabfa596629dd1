"""BERT-Attack (Li et al., EMNLP 2020): substitutes that a masked language model writes in the place of a word.

The language model reads the text as it is, without a mask, and its likeliest words for each place are the candidates.
For a word of several sub-words they are combinations of the likeliest sub-words, ordered by perplexity. Words are taken
by importance; the first candidate that makes the model wrong ends the search, else the one that lowers the margin most
is kept.

Deviations from the paper and its code: a word's importance is what the margin loses when the word is left out (there it
becomes [MASK] or [UNK]); K candidates are whole words (there, pieces and stop words are taken out of K tokens);
combinations are those with the highest sum of log-probabilities, with perplexity in the text (there the first 24 of
4^n, by themselves, which may be several words); a word takes on the case of the word it replaces; candidates with an
opposite meaning are not left out (there, by vectors); p_y, as published, is `scores: probability`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from rosewood.attacks.runner.attack import Attack, Descent
from rosewood.attacks.runner.scores import Measure
from rosewood.attacks.runner.search import Resources, Search, Target, by_importance
from rosewood.words.constraints import is_stop_word
from rosewood.words.text import replaced, with_case_of


@dataclass(frozen=True)
class BertAttack(Attack):
    """Greedy word replacement by importance, with the words of a masked language model."""

    candidates: Annotated[int, Field(ge=1)] = 48
    """Words tried in a place, at most."""
    combinations: Annotated[int, Field(ge=1)] = 24
    """Combinations of sub-words that are compared, for a word that has several."""
    max_words_share: Annotated[float, Field(gt=0, le=1)] = 0.4
    """Share of the words changed, at most; one word is always allowed."""
    skip_stop_words: bool = True
    """Leave words such as "the" as they are, and put none in."""
    scores: Literal["margin", "probability"] = "margin"
    """What is lowered: the margin, on a scale that the model's confidence does not change; or p_y, as published."""

    def measure(self) -> Measure:
        return self.scores

    def needs(self) -> dict[str, str]:
        return {
            "masked_lm": "bert_attack takes words from a masked language model: pass one, such as "
            'masked_lm=MaskedLM.load("bert-base-uncased"), on the command line --masked-lm bert-base-uncased'
        }

    def changeable(self, words: Sequence[str], resources: Resources) -> int:
        return len([word for word in words if self._may_change(word)])

    def search(self, target: Target) -> Search:
        if not any(map(self._may_change, target.words)):
            return
        masked_lm = target.resources.masked_lm
        assert masked_lm is not None
        order = yield from by_importance(target)
        reading = masked_lm.read(target.text, self.candidates)
        left = max(1, int(self.max_words_share * len(target.words)))
        now = Descent.begin(target)
        for at in order:
            word = target.words[at]
            if not self._may_change(word):
                continue
            found = reading.substitutes(at, self.combinations)
            cased = dict.fromkeys(with_case_of(each, word) for each in found if not self._is_left_out(each))
            tried = [replaced(now.words, at, each) for each in cased if each.lower() != word.lower()]
            kept = yield from now.step(tried, -np.arange(len(tried), dtype=float))
            left -= kept is not None
            if not left:
                return

    def _may_change(self, word: str) -> bool:
        return any(map(str.isalpha, word)) and not self._is_left_out(word)

    def _is_left_out(self, word: str) -> bool:
        return self.skip_stop_words and is_stop_word(word)
