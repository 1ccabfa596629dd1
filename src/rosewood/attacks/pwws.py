"""PWWS: replace words one after the other, most promising first (Ren et al., ACL 2019), as RIFT evaluates with it.

The saliency of a word is what the right class loses when the word becomes unknown: S_i = p_y(x) - p_y(x with word i
unknown). Each word's best substitute w* is the one that lowers p_y most, by D_i. Words are replaced in descending order
of D_i * softmax(S)_i until the model is wrong.

With a budget of queries, substitutes are asked for place by place, the most salient place first, and an example whose
search comes to its end, or to that of the budget, is broken if a single substitute was enough.

Deviation from the paper and its code: w* lowers the margin most, and p_y is the `chances` of `runner/scores.py`, which
depends on how much of the original text's margin is left and not on how sure the model is. With `scores: probability`
it is the model's probability, as published; on a confident model D is then 0 for every word.

Deviations from the paper, shared with RIFT's code: substitutes come from the given lexicon, not from WordNet, and
named entities are not treated apart. Deviation from RIFT's code: the saliency of RIFT covers the first 300 (IMDB) or 80
(SNLI) words, ours all words that reach the model under `max_length`. For RIFT's setting in full give text tokenized by
NLTK and set exact_case and split_at_spaces.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from scipy.special import softmax

from rosewood.attacks.runner.attack import WordSubstitution
from rosewood.attacks.runner.scores import Floats, Measure, Scores, first_lowest, highest_first
from rosewood.attacks.runner.search import Candidate, Question, Search, Target, move, probe, trial
from rosewood.words.text import replaced


@dataclass(frozen=True)
class Pwws(WordSubstitution):
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
        tried = [[replaced(words, at, each) for each in surface[at]] for at in places]
        clean = target.clean.chances[0]
        known = yield from (_place_by_place(unknown, tried, places, clean) if target.bounded else _all(unknown, tried))
        weights = softmax(clean - known.unknown)
        chosen = [first_lowest(own, known.near) for own in known.values]
        best = [surface[at][i] for at, i in zip(places, chosen, strict=True)]
        gains = [clean - own[i] for own, i in zip(known.chances, chosen, strict=True)]
        # Times the number of words: ties are broken on the scale of the scores, however long the text is.
        order = highest_first(np.array(gains) * weights[places] * len(words), known.near)
        current = words
        for i in order:
            if self.replace_without_gain or gains[i] > known.near:
                after = replaced(current, places[i], best[i])
                if target.allowed([after], current):
                    current = after
                    yield move([current])


class _Known(NamedTuple):
    """What the model says of each text with an unknown word, and of all substitutes at each place."""

    unknown: Floats
    """Chances."""
    values: list[Floats]
    chances: list[Floats]
    near: float


def _all(unknown: list[Candidate], tried: list[list[Candidate]]) -> Generator[Question, Scores, _Known]:
    """In one question, which fills batches."""
    scores = yield probe([*unknown, *(each for own in tried for each in own)])
    starts = np.cumsum([len(unknown), *map(len, tried)])[:-1]
    values, chances = (np.split(each, starts)[1:] for each in (scores.values, scores.chances))
    return _Known(scores.chances[: len(unknown)], values, chances, scores.near)


def _place_by_place(
    unknown: list[Candidate], tried: list[list[Candidate]], places: list[int], clean: float
) -> Generator[Question, Scores, _Known]:
    """The most salient place first: what a budget cuts off matters least, and a substitute may do by itself."""
    scores = yield probe(unknown)
    salience = clean - scores.chances
    found: dict[int, Scores] = {}
    for i in highest_first(salience[places], scores.near).tolist():
        found[i] = yield trial(tried[i])
    asked = [found[i] for i in range(len(places))]
    near = max(each.near for each in asked)
    return _Known(scores.chances, [each.values for each in asked], [each.chances for each in asked], near)
