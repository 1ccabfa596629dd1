"""Tensors and processes that work together: parts that FSDP2 divides, means over processes, flat buffers and norms.

Where nothing is divided, every function returns what it was given, and a process alone has nothing to do. What is
computed over all elements of a divided tensor has to come through here: plain arithmetic on a part is silently that of
the part.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, distributed, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, Partial, Replicate, distribute_tensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset


def are_divided(tensors: Iterable[Tensor]) -> bool:
    """Whether some of them are."""
    return any(isinstance(tensor, DTensor) for tensor in tensors)


@torch.no_grad()
def part(tensor: Tensor) -> Tensor:
    """This process's part; what is written into it is written into the tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def parts(tensors: Iterable[Tensor]) -> list[Tensor]:
    return [part(tensor) for tensor in tensors]


def whole(tensor: Tensor) -> Tensor:
    """All of it, on every process; gradients find their way back."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def whole_beside(tensor: Tensor) -> Tensor:
    """All of it, for a module that no forward of FSDP2 runs; gradients, each process's own, are averaged on the way."""
    if not isinstance(tensor, DTensor):
        return tensor
    count = tensor.device_mesh.size()
    full = tensor.full_tensor(grad_placements=[Partial()] * tensor.device_mesh.ndim)
    full.register_hook(lambda gradient: gradient / count)
    return full


def cut(full: Tensor, like: Tensor) -> Tensor:
    """This process's part of a tensor that all have, as `like` is divided; a view. Axes to be expanded stay."""
    if not isinstance(like, DTensor):
        return full
    sizes, offsets = compute_local_shape_and_global_offset(like.shape, like.device_mesh, like.placements)
    for axis, (size, offset) in enumerate(zip(sizes, offsets, strict=True)):
        if full.shape[axis] == like.shape[axis]:
            full = full.narrow(axis, min(offset, full.shape[axis]), size)
    return full


def divided(full: Tensor, like: Tensor) -> Tensor:
    """The first process's tensor, divided as `like`; the others may have loaded nothing but its shape."""
    if not isinstance(like, DTensor):
        return full
    if full.is_meta:
        full = torch.empty_like(full, device=like.device)
    return distribute_tensor(full.to(like.device, like.dtype), like.device_mesh, like.placements)


def sums(numbers: Tensor, of: Sequence[Tensor]) -> Tensor:
    """Numbers about the own part of each tensor, `(len(of),)`, added up over all parts."""
    are_parts = [isinstance(tensor, DTensor) for tensor in of]
    first = next((tensor for tensor in of if isinstance(tensor, DTensor)), None)
    if first is None:
        return numbers
    spread = [Partial() if placement.is_shard() else Replicate() for placement in first.placements]
    total = DTensor.from_local(numbers, first.device_mesh, spread).full_tensor()
    return torch.where(torch.tensor(are_parts, device=total.device), total, numbers)


def norms(tensors: Sequence[Tensor], dtype: torch.dtype | None = None) -> Tensor:
    """The Frobenius norm of each tensor, `(len(tensors),)`, without a Python loop over them."""
    found = torch.stack(torch._foreach_norm(parts(tensors), 2, dtype))
    return sums(found.square(), tensors).sqrt() if are_divided(tensors) else found


def all_elements(flat: Flat, like: Sequence[Tensor]) -> Tensor:
    """One flat tensor of what all processes have in `flat`, whose pieces belong to the parts of `like`, in order."""
    if not are_divided(like):
        return flat.whole
    return torch.cat([_joined(piece, tensor).flatten() for piece, tensor in zip(flat.pieces, like, strict=True)])


def room(flat: Flat, like: Sequence[Tensor]) -> Tensor:
    """A flat tensor to be filled with all elements, for `keep_own`."""
    return flat.whole.new_empty(sum(tensor.numel() for tensor in like)) if are_divided(like) else flat.whole


def keep_own(flat: Flat, elements: Tensor, like: Sequence[Tensor]) -> None:
    """Fill `flat` with the own part of what `all_elements` is to give."""
    if elements is flat.whole:
        return
    whole_pieces = elements.split([tensor.numel() for tensor in like])
    for piece, full, tensor in zip(flat.pieces, whole_pieces, like, strict=True):
        piece.copy_(cut(full.view(tensor.shape), tensor))


def _joined(piece: Tensor, like: Tensor) -> Tensor:
    if not isinstance(like, DTensor):
        return piece
    shape, stride = like.shape, like.stride()
    return DTensor.from_local(piece, like.device_mesh, like.placements, shape=shape, stride=stride).full_tensor()


@contextmanager
def replaced(model: nn.Module, parameters: Sequence[Tensor], values: Sequence[Tensor]) -> Iterator[None]:
    """Inside, parameters have other values, given by their parts; afterwards the same bits as before."""
    before = [part(p).clone() if isinstance(p, DTensor) else p.data for p in parameters]
    _put(model, parameters, values)
    try:
        yield
    finally:
        _put(model, parameters, before)


@torch.no_grad()
def _put(model: nn.Module, parameters: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    for parameter, value in zip(parameters, values, strict=True):
        if isinstance(parameter, DTensor):
            part(parameter).copy_(value)  # FSDP2 gathers from this very memory
        else:
            parameter.data = value
    divide(model)


def divide(model: nn.Module) -> None:
    """Let go of gathered parameters: they may be outdated, and named_parameters should give the divided ones."""
    if not isinstance(model, FSDPModule):
        return
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()  # FSDP2 gathers on streams of its own


def break_off(model: nn.Module) -> None:
    """Tell FSDP2 that a forward ended in the middle."""
    if isinstance(model, FSDPModule):
        model.reset_iter_state()


def gradients(
    loss: Tensor, of: Sequence[Tensor], leaves: Iterable[Tensor], retain_graph: bool = False
) -> list[Tensor | None]:
    """torch.autograd.grad, which never touches `.grad`; `leaves` are further tensors that a backward would reach.

    While FSDP2 computes, gathered copies replace the parameters, so torch.autograd.grad finds no way to those and
    says nothing. There an ordinary backward runs, which reduces over all processes, with every `.grad` put aside.
    """
    leaves = list({id(tensor): tensor for tensor in (*leaves, *of)}.values())
    if not are_divided(leaves):
        return list(torch.autograd.grad(loss, list(of), retain_graph=retain_graph, allow_unused=True))
    before = [leaf.grad for leaf in leaves]
    for leaf in leaves:
        leaf.grad = None
    loss.backward(retain_graph=retain_graph)
    found = [tensor.grad for tensor in of]
    for leaf, gradient in zip(leaves, before, strict=True):
        leaf.grad = gradient
    return found


class Flat(NamedTuple):
    """A buffer `(elements,)` and, as views of it, one piece in the shape of each of some tensors."""

    whole: Tensor
    pieces: list[Tensor]


def flat_like(tensors: Sequence[Tensor]) -> Flat:
    """Zeros for every element of the tensors, of their widest dtype, but at least float32."""
    dtype = reduce(torch.promote_types, (tensor.dtype for tensor in tensors), torch.float32)
    sizes = [tensor.numel() for tensor in tensors]
    whole = torch.zeros(sum(sizes), dtype=dtype, device=tensors[0].device)
    pieces = zip(whole.split(sizes), tensors, strict=True)
    return Flat(whole, [piece.view(tensor.shape) for piece, tensor in pieces])


def stacked_norms(tensors: list[Tensor]) -> Tensor:
    """The Frobenius norm of each tensor, `(len(tensors),)`, without a Python loop over them."""
    # Half precision would round norms to ties, or overflow.
    dtype = torch.promote_types(tensors[0].dtype, torch.float32)
    return norms(tensors, dtype)


def flat_magnitudes(tensors: list[Tensor]) -> Tensor:
    """The absolute values of all elements, in one flat tensor of float32 or better."""
    flat = torch.cat([whole(tensor).flatten() for tensor in tensors])
    return flat.to(torch.promote_types(flat.dtype, torch.float32)).abs_()


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
