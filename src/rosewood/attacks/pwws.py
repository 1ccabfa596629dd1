"""PWWS: replace words one after the other, most promising first (Ren et al., ACL 2019), as RIFT evaluates with it.

The saliency of a word is what the right class loses when the word becomes unknown: S_i = p_y(x) - p_y(x with word i
unknown). Each word's best substitute w* is the one that lowers p_y most, by D_i. Words are replaced in descending order
of D_i * softmax(S)_i until the model is wrong.

Deviation from the paper and its code: w* lowers the margin most, and p_y is the `chances` of `runner/scores.py`, which
depends on how much of the original text's margin is left and not on how sure the model is. With `scores: probability`
it is the model's probability, as published; on a confident model D is then 0 for every word.

Deviations from the paper, shared with RIFT's code: substitutes come from the given lexicon, not from WordNet, and
named entities are not treated apart. Deviation from RIFT's code: the saliency of RIFT covers the first 300 (IMDB) or 80
(SNLI) words, ours all words that reach the model under `max_length`. For RIFT's setting in full give text tokenized by
NLTK and set exact_case and split_at_spaces.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import softmax

from rosewood.attacks.runner.attack import Substitution
from rosewood.attacks.runner.example import Search, Target, move, probe
from rosewood.attacks.runner.scores import Measure, first_lowest, highest_first
from rosewood.words.text import replaced


@dataclass(frozen=True)
class Pwws(Substitution):
    """Greedy word replacement, in the order of word saliency times gain."""

    unknown_word: str = "NULL"
    """What replaces a word to measure its saliency."""
    replace_without_gain: bool = True
    """Go on with substitutes that did not lower p_y by themselves, as RIFT's code does."""
    scores: Literal["margin", "probability"] = "margin"
    """What is lowered: the margin, on a scale that the model's confidence does not change; or p_y, as published."""

    def measure(self) -> Measure:
        return self.scores

    def search(self, target: Target) -> Search:
        words, surface = target.words, target.allowed_alone(self.surface(target))
        places = [at for at, found in enumerate(surface) if found]
        if not places:
            return
        unknown = [replaced(words, at, self.unknown_word) for at in range(len(words))]
        tried = [replaced(words, at, each) for at in places for each in surface[at]]
        scores = yield probe([*unknown, *tried])
        lost = target.clean.chances[0] - scores.chances
        weights = softmax(lost[: len(words)])
        best, gains = [], []
        at_first = len(words)
        for at in places:
            own = slice(at_first, at_first + len(surface[at]))
            chosen = first_lowest(scores.values[own], scores.near)
            best.append(surface[at][chosen])
            gains.append(lost[own][chosen])
            at_first = own.stop
        # Times the number of words: ties are broken on the scale of the scores, however long the text is.
        order = highest_first(np.array(gains) * weights[places] * len(words), scores.near)
        current = words
        for i in order:
            if self.replace_without_gain or gains[i] > scores.near:
                after = replaced(current, places[i], best[i])
                if target.allowed([after], current):
                    current = after
                    yield move([current])
