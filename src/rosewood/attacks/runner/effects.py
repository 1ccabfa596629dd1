"""Effects: what each edit does to the value of a text, believed from slopes and corrected by the texts that were asked.

Effects of different edits are taken to add up. Before any answer the effect of an edit is a normal variable around its
slope, or around the mean of its slopes at several texts. Slopes are poor: the spread is as wide as the slopes of the
word's edits are large, wider for a steep edit, and never zero, because a model may be flat in the direction of a word
and still depend on it. The value of a text says what the sum of its edits' effects is, but for noise, since effects do
not add up exactly. Given some values, what is believed of the effects is linear regression with a normal prior.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rosewood.attacks.runner.scores import Floats
from rosewood.attacks.runner.slopes import Edit

# In units in which the original text has CLEAN_VALUE; chosen on training sentences of SST-2.
SPREAD = 0.3
"""The spread of an effect where all slopes are 0."""
STEEPNESS = 0.5
"""What the spread grows with the edit's own slope."""
NOISE = 0.5
"""How far the value of a text is from the sum of effects."""


class Effects:
    """What is believed of the effects of some edits of a text."""

    def __init__(self, edits: Sequence[Edit]) -> None:
        self._numbers = {edit: number for number, edit in enumerate(edits)}
        self._places = np.array([edit.at for edit in edits], dtype=np.int64)
        self._slopes: list[Floats] = []
        self._texts: list[Floats] = []
        self._changes: list[float] = []

    def sloped(self, slopes: Floats) -> None:
        """Slopes of all edits, at one more text."""
        self._slopes.append(slopes)

    def asked(self, edits: Sequence[Edit], change: float) -> None:
        """The value of the text with these edits, less that of the original."""
        text = np.zeros(len(self._places))
        text[[self._numbers[edit] for edit in edits]] = 1.0
        self._texts.append(text)
        self._changes.append(change)

    def believed(self) -> tuple[Floats, Floats]:
        """Mean and standard deviation of each effect."""
        means = np.mean(self._slopes, axis=0)
        squares, counts = np.bincount(self._places, means**2), np.bincount(self._places)
        of_words = np.sqrt(squares / np.maximum(counts, 1))
        variances = (SPREAD + STEEPNESS * abs(means) + of_words[self._places]) ** 2
        if not self._texts:
            return means, np.sqrt(variances)
        texts = np.array(self._texts)
        together = texts * variances  # (texts, edits): covariances
        gains = np.linalg.solve(together @ texts.T + NOISE**2 * np.eye(len(texts)), together)
        missed = np.array(self._changes) - texts @ means
        left = variances - (together * gains).sum(axis=0)
        return means + missed @ gains, np.sqrt(np.maximum(left, 0.0))
