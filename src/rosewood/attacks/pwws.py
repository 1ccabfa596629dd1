"""PWWS: replace words one after the other, most promising first (Ren et al., ACL 2019), as RIFT evaluates with it.

The saliency of a word is what the right class loses when the word becomes unknown: S_i = p_y(x) - p_y(x with word i
unknown). Each word's best substitute w* is the one that lowers p_y most, by D_i. Words are replaced in descending order
of D_i * softmax(S)_i until the model is wrong.

Deviations from the paper, shared with RIFT's code: substitutes come from the given lexicon, not from WordNet, and
named entities are not treated apart. Deviation from RIFT's code: the saliency of RIFT covers the first 300 (IMDB) or 80
(SNLI) words, ours all words that reach the model under `max_length`. For RIFT's setting in full give text tokenized by
NLTK and set exact_case and split_at_spaces.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from rosewood.attacks.search.questions import Search, Target, move, probe
from rosewood.attacks.search.substitution import Substitution
from rosewood.attacks.search.ties import first_lowest, highest_first, lower
from rosewood.data.words import replaced


@dataclass(frozen=True)
class Pwws(Substitution):
    """Greedy word replacement, in the order of word saliency times gain."""

    unknown_word: str = "NULL"
    """What stands in for a word to measure its saliency."""
    replace_without_gain: bool = True
    """Go on with substitutes that did not lower p_y by themselves, as RIFT's code does."""

    def search(self, target: Target) -> Search:
        words, surface = target.words, self.surface(target)
        places = [at for at, found in enumerate(surface) if found]
        if not places:
            return
        unknown = [replaced(words, at, self.unknown_word) for at in range(len(words))]
        tried = [replaced(words, at, each) for at in places for each in surface[at]]
        scores = yield probe([*unknown, *tried])
        start = target.clean.of_label[0]
        weights = softmax(start - scores.of_label[: len(words)])
        best, gains = [], []
        after = scores.of_label[len(words) :]
        for at in places:
            own, after = after[: len(surface[at])], after[len(surface[at]) :]
            chosen = first_lowest(own)
            best.append(surface[at][chosen])
            gains.append(start - own[chosen])
        # Times the number of words: ties are broken on the scale of a probability, however long the text is.
        order = highest_first(np.array(gains) * weights[places] * len(words))
        current = words
        for i in order:
            if self.replace_without_gain or lower(0, gains[i]):
                current = replaced(current, places[i], best[i])
                yield move([current])
