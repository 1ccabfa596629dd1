"""Batches of similar length, in an order that depends on seed and epoch alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.utils.data import Sampler

BATCHES_PER_CHUNK = 50


class LengthGroupedSampler(Sampler[int]):
    """Shuffles, then sorts by length within chunks of many batches, so that batches need little padding.

    The order is a function of `(seed, epoch)`: a run resumed in the middle of an epoch sees the same batches.
    The batch with the longest text comes first, so that running out of memory happens at once.
    """

    def __init__(self, lengths: Sequence[int], batch_size: int, seed: int) -> None:
        self._lengths = torch.as_tensor(list(lengths))
        self._batch_size = batch_size
        self._seed = seed
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch

    def __len__(self) -> int:
        return len(self._lengths)

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self._seed * 1_000_003 + self._epoch)
        shuffled = torch.randperm(len(self), generator=generator)
        chunks = [longest_first(chunk, self._lengths) for chunk in shuffled.split(self._batch_size * BATCHES_PER_CHUNK)]
        return iter(shuffled_batches(torch.cat(chunks), self._lengths, self._batch_size, generator).tolist())


def longest_first(order: Tensor, lengths: Tensor) -> Tensor:
    """The same examples by falling length; those of one length stay as they stand."""
    return order[lengths[order].argsort(descending=True, stable=True)]


def shuffled_batches(order: Tensor, lengths: Tensor, batch_size: int, generator: torch.Generator) -> Tensor:
    """Batches in another order, so that length does not follow the schedule; a short last one stays last."""
    batches = list(order.split(batch_size))
    short = [batches.pop()] if len(batches[-1]) < batch_size else []
    places = torch.randperm(len(batches), generator=generator).tolist()
    if batches:
        longest = max(range(len(batches)), key=lambda i: int(lengths[batches[i]].max()))
        places.sort(key=lambda i: i != longest)
    return torch.cat([batches[i] for i in places] + short)
