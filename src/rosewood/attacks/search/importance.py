"""How much the right class hangs on each word: the order in which greedy attacks go through a text."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np
from numpy.typing import NDArray

from rosewood.attacks.search.questions import Question, Scores, Target, probe
from rosewood.attacks.search.ties import highest_first
from rosewood.data.words import replaced


def by_importance(target: Target) -> Generator[Question, Scores, NDArray[np.int64]]:
    """The places of all words, the most important first (Jin et al. 2020, eq. 2).

    A word is worth what the right class loses when the word is left out; where the prediction flips, what the new
    class gains is added.
    """
    words = target.words
    scores = yield probe([replaced(words, at, "") for at in range(len(words))])
    loss = target.clean.of_label[0] - scores.of_label
    gained = scores.probabilities - target.clean.probabilities[0]
    flipped = gained[np.arange(len(words)), scores.predictions]
    return highest_first(loss + np.where(scores.wrong, flipped, 0.0))
