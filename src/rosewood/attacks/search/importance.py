"""How much the right class hangs on each word: the order in which greedy attacks go through a text."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np
from numpy.typing import NDArray

from rosewood.attacks.search.questions import Question, Target, probe
from rosewood.attacks.search.scores import Scores, highest_first
from rosewood.data.words import replaced


def by_importance(target: Target) -> Generator[Question, Scores, NDArray[np.int64]]:
    """The places of all words, the most important first.

    A word is worth what the margin loses when the word is left out. With probabilities it is Jin et al. 2020, eq. 2:
    what the right class loses and, where the prediction flips, what the new class gains. The margin has the new class
    in it already; for two classes the order is the same.
    """
    words, clean = target.words, target.clean
    scores = yield probe([replaced(words, at, "") for at in range(len(words))])
    if scores.measure != "probability":
        return highest_first(clean.values[0] - scores.values, scores.near)
    gained = (scores.probabilities - clean.probabilities)[np.arange(len(words)), scores.predictions]
    worth = clean.chances[0] - scores.chances + np.where(scores.wrong, gained, 0.0)
    return highest_first(worth, scores.near)
