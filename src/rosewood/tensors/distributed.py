"""Means over the processes that work together; a process alone has nothing to do."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed
from torch.distributed.tensor import DTensor

MESSAGE_ELEMENTS = 2**24
Value = TypeVar("Value")


def together() -> bool:
    """Whether there is more than one process."""
    return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1


def rank() -> int:
    """The number of this process among those that work together; known before they have met."""
    return int(os.environ.get("RANK", "0"))


def is_first() -> bool:
    """Whether this process is the one that writes files and talks."""
    return rank() == 0


def share_of(things: Sequence[Value]) -> Sequence[Value]:
    """This process's part of some things that all processes have in the same order."""
    return things[distributed.get_rank() :: distributed.get_world_size()] if together() else things


def from_all(value: Value) -> list[Value]:
    """What each process hands in, by rank."""
    if not together():
        return [value]
    values: list[Value] = [value] * distributed.get_world_size()
    distributed.all_gather_object(values, value)
    return values


def gathered(own: Tensor) -> Tensor:
    """The rows of all processes, by rank; how many rows there are may differ.

    Every process is to compute the same loss from them. Its gradient reaches the own rows only, times the number of
    processes, so that the mean of the gradients over processes is the gradient of that loss.
    """
    rows: Tensor = _Gathered.apply(own) if together() else own
    return rows


class _Gathered(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, own: Tensor) -> Tensor:
        count = torch.tensor(len(own), device=own.device)
        counts = [torch.zeros_like(count) for _ in range(distributed.get_world_size())]
        distributed.all_gather(counts, count)
        ctx.lengths = [int(length) for length in counts]
        padded = own.new_zeros(max(ctx.lengths), *own.shape[1:])
        padded[: len(own)] = own
        found = [torch.empty_like(padded) for _ in ctx.lengths]
        distributed.all_gather(found, padded)
        return torch.cat([rows[:length] for rows, length in zip(found, ctx.lengths, strict=True)])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0].split(ctx.lengths)[distributed.get_rank()] * len(ctx.lengths)


def average_(tensors: Sequence[Tensor]) -> None:
    """Replace each tensor, in place, by its mean over all processes, which must hand in the same shapes in order.

    Sharded tensors are left alone: the one who shards them has reduced them.
    """
    if not together():
        return
    for message in _messages([tensor for tensor in tensors if not isinstance(tensor, DTensor)]):
        whole = torch.cat([tensor.flatten() for tensor in message]).div_(distributed.get_world_size())
        distributed.all_reduce(whole)
        pieces = whole.split([tensor.numel() for tensor in message])
        torch._foreach_copy_(message, [piece.view_as(part) for piece, part in zip(pieces, message, strict=True)])


def sum_(tensor: Tensor) -> None:
    """Replace a tensor, in place, by its sum over all processes."""
    if together():
        distributed.all_reduce(tensor)


def anywhere(present: Sequence[bool], device: torch.device) -> list[bool]:
    """Which of some things hold on any process."""
    if not together():
        return list(present)
    votes = torch.tensor(present, dtype=torch.uint8, device=device)
    distributed.all_reduce(votes, distributed.ReduceOp.MAX)
    return [bool(vote) for vote in votes.tolist()]


def completed(gradients: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Gradients by name in the order of `like`, with zeros for those that only other processes have."""
    if not together():
        return dict(gradients)
    device = next(iter(like.values())).device
    wanted = anywhere([name in gradients for name in like], device)
    return {
        name: gradients[name] if name in gradients else torch.zeros_like(one)
        for (name, one), has in zip(like.items(), wanted, strict=True)
        if has
    }


def _messages(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Parts of one type that are large enough to be worth a message and small enough to be copied."""
    part: list[Tensor] = []
    size = 0
    for tensor in tensors:
        if part and (size + tensor.numel() > MESSAGE_ELEMENTS or tensor.dtype != part[0].dtype):
            yield part
            part, size = [], 0
        part.append(tensor)
        size += tensor.numel()
    if part:
        yield part
