"""A greedy search through one text: of the candidates of each step the best is kept, if it is better than before."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

import numpy as np

from rosewood.attacks.runner.example import Candidate, Question, Target, move, probe
from rosewood.attacks.runner.scores import Floats, Scores, first_lowest, highest_first, lower
from rosewood.words.constraints import around, similarities


@dataclass
class Descent:
    """Where a greedy search has come to: the words as they are by now, and what they score."""

    target: Target
    words: Candidate
    value: float

    @classmethod
    def begin(cls, target: Target) -> Descent:
        return cls(target, target.words, float(target.clean.values[0]))

    def step(
        self, tried: Sequence[Candidate], preference: Floats | None = None
    ) -> Generator[Question, Scores, int | None]:
        """Keep the candidate with the lowest value if it lowers the value; gives its index, or None.

        A candidate that makes the model wrong ends the attack: of several the one of the highest `preference`, by
        default the one with the lowest value.
        """
        allowed = self.target.allowed(tried, self.words)
        if not allowed:
            return None
        scores = yield probe([tried[i] for i in allowed])
        if scores.wrong.any():
            order = (
                highest_first(-scores.values, scores.near)
                if preference is None
                else np.argsort(-preference[allowed], kind="stable")
            )
            yield move([tried[allowed[i]] for i in order if scores.wrong[i]])
        best = first_lowest(scores.values, scores.near)
        if not lower(scores.values[best], self.value, scores.near):
            return None
        self.words, self.value = tried[allowed[best]], float(scores.values[best])
        return allowed[best]

    def similar_step(
        self, tried: Sequence[Candidate], at: int, min_similarity: float | None, window: int
    ) -> Generator[Question, Scores, int | None]:
        """A step among the candidates whose text is similar enough to the original; the most similar one is preferred.

        They differ from the words so far in place `at`. A text of more words than the window is compared in the
        window around that place. Without a bound the first one is preferred.
        """
        if min_similarity is None or not tried:
            return (yield from self.step(tried, np.zeros(len(tried))))
        target = self.target
        encoder = target.resources.encoder
        assert encoder is not None
        if len(target.words) > window:
            seen = around(at, len(target.words), window)
            texts = [" ".join(words[seen]) for words in (target.words, *tried)]
        else:
            texts = [target.text.join(words) for words in (target.words, *tried)]
        alike = similarities(encoder, texts)
        close = np.flatnonzero(alike >= min_similarity).tolist()
        kept = yield from self.step([tried[i] for i in close], alike[close].round(5))
        return None if kept is None else close[kept]
