"""Random numbers of perturbations: drawn before the forward pass, one row an example, and repeatable on demand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import Tensor, nn

from rosewood.protocol import Batch, Call, Output


def uniform(batch: Batch, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Numbers in [0, 1) for each example, `(batch, *shape)`."""
    ids = batch["input_ids"]
    return torch.rand(len(ids), *shape, dtype=dtype, device=ids.device)


def normal(batch: Batch, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Standard normal numbers for each example, `(batch, *shape)`."""
    ids = batch["input_ids"]
    return torch.randn(len(ids), *shape, dtype=dtype, device=ids.device)


def forked(device: torch.device) -> AbstractContextManager[None]:
    """Leave the random state of the processor and of the device as it was."""
    if device.type == "cpu":
        return torch.random.fork_rng(devices=[])
    return torch.random.fork_rng(devices=[device.index or 0], device_type=device.type)


class Replay:
    """Gives several passes the same random numbers, hence the same dropout; only the first moves the generators on."""

    def __init__(self, call: Call, batch: Batch) -> None:
        self._call = call
        self._device: torch.device = batch["input_ids"].device
        self._start: tuple[Tensor, Tensor | None] | None = None

    def __call__(self, batch: Batch, model: nn.Module | None = None) -> Output:
        with self._from_the_start():
            return self._call(batch, model)

    @contextmanager
    def _from_the_start(self) -> Iterator[None]:
        on_device = None if self._device.type == "cpu" else torch.get_device_module(self._device)
        if self._start is None:
            self._start = (torch.get_rng_state(), on_device and on_device.get_rng_state(self._device))
            yield
            return
        with forked(self._device):
            torch.set_rng_state(self._start[0])
            if on_device is not None:
                on_device.set_rng_state(self._start[1], self._device)
            yield
