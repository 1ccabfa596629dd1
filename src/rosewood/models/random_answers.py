"""Models that answer differently from call to call: several answers for each text, with random numbers of its own.

A draw is numbered. Its random numbers depend on the seed, the number and the text alone, so that the same text gets the
same answers in any batch. A defence around a model is started again with another seed for each draw. Any other model
draws from torch's generator, which is seeded for each text: then a text is read by itself, as often as there are draws.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256

import numpy as np
import torch
from numpy.typing import NDArray

from rosewood.models.defended import Defended
from rosewood.models.scoring import Row, Scored, Scorer
from rosewood.tensors.draws import forked

_CHUNK = 4
"""Batches of texts whose answers are collected before they are handed on."""


class Drawn:
    """A scorer that gives each text the answers of several draws: `(draws, ...)` in place of `(...)`."""

    def __init__(self, scorer: Scorer, draws: int, seed: int = 0, first: int = 0) -> None:
        self.scorer, self.draws, self.seed, self.first = scorer, draws, seed, first

    def batches(self, texts: Sequence[Row]) -> Iterator[Scored]:
        """The answers for some texts, a few batches at a time."""
        size = _CHUNK * self.scorer.batch_size
        for start in range(0, len(texts), size):
            part = texts[start : start + size]
            found = self._redrawn(part) if isinstance(self.scorer.model, Defended) else map(self._seeded, part)
            yield Scored(list(range(start, start + len(part))), list(found))

    def _redrawn(self, texts: Sequence[Row]) -> list[NDArray[np.float32]]:
        model = self.scorer.model
        assert isinstance(model, Defended)
        found: list[list[NDArray[np.float32]]] = [[] for _ in texts]
        for draw in range(self.first, self.first + self.draws):
            with model.drawing(self.seed, draw):
                for batch in self.scorer.batches(texts):
                    for row, logits in zip(batch.rows, batch.logits, strict=True):
                        found[row].append(logits)
        return [np.stack(each) for each in found]

    def _seeded(self, text: Row) -> NDArray[np.float32]:
        with self.seeds(text):
            # One batch, whatever its size is elsewhere: the random numbers of a copy depend on its place in the batch.
            (batch,) = self.scorer.in_batches_of(self.draws).batches([text] * self.draws)
        return np.stack([batch.logits[batch.rows.index(copy)] for copy in range(self.draws)])

    @contextmanager
    def seeds(self, text: Row) -> Iterator[None]:
        """Inside, torch draws the random numbers of this text."""
        digest = sha256(repr((self.seed, self.first, *text)).encode()).digest()
        with forked(self.scorer.model.device):
            torch.manual_seed(int.from_bytes(digest[:7], "little"))
            yield


def is_random(scorer: Scorer, text: Row) -> bool:
    """Whether two draws of a model differ on a text."""
    if isinstance(scorer.model, Defended):
        return scorer.model.defence.redrawn(0, 0) is not scorer.model.defence
    one, two = (next(iter(Drawn(scorer, 1, first=first).batches([text]))).logits[0] for first in (0, 1))
    return not np.array_equal(one, two)
