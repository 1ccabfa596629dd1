"""Batches of similar length, in an order that depends on seed and epoch alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch.utils.data import Sampler


class LengthGroupedSampler(Sampler[int]):
    """Shuffles, then sorts by length within chunks of many batches, so that batches need little padding.

    The order is a function of `(seed, epoch)`: a run resumed in the middle of an epoch sees the same batches.
    The batch with the longest text comes first, so that running out of memory happens at once.
    """

    def __init__(self, lengths: Sequence[int], batch_size: int, seed: int, batches_per_chunk: int = 50) -> None:
        self._lengths = torch.as_tensor(list(lengths))
        self._batch_size = batch_size
        self._chunk = batch_size * batches_per_chunk
        self._seed = seed
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch

    def __len__(self) -> int:
        return len(self._lengths)

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self._seed * 1_000_003 + self._epoch)
        shuffled = torch.randperm(len(self), generator=generator)
        chunks = [
            chunk[self._lengths[chunk].argsort(descending=True, stable=True)] for chunk in shuffled.split(self._chunk)
        ]
        batches = list(torch.cat(chunks).split(self._batch_size))
        # A short last batch stays last; full batches are shuffled, so that length does not follow the schedule.
        short = [batches.pop()] if len(batches[-1]) < self._batch_size else []
        order = torch.randperm(len(batches), generator=generator).tolist()
        if batches:
            longest = max(range(len(batches)), key=lambda i: int(self._lengths[batches[i]].max()))
            order.sort(key=lambda i: i != longest)
        return iter(torch.cat([batches[i] for i in order] + short).tolist())
