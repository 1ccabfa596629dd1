"""Gradients that components take by themselves, out of the optimiser's sight."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from rosewood.protocol import stacked_norms

LossScale = Callable[[Tensor], Tensor]


def slopes(loss: Tensor, tensors: Sequence[Tensor], scale: LossScale | None = None) -> list[Tensor]:
    """The gradients of a loss with respect to some tensors, zero where it does not depend on one.

    With a loss scale, as fp16 has one, they are taken of the scaled loss, so that small ones do not vanish on the way,
    and divided by the scale. The trainer skips a step whose gradients overflow and lowers the scale; here they are
    taken again of a smaller multiple.
    """
    if scale is None:
        return list(torch.autograd.grad(loss, tensors, allow_unused=True, materialize_grads=True))
    factor = scale(torch.ones_like(loss))
    while True:
        found = torch.autograd.grad(
            loss * factor, tensors, retain_graph=True, allow_unused=True, materialize_grads=True
        )
        if factor <= 1 or stacked_norms(list(found)).isfinite().all():
            return list(torch._foreach_div(found, factor))
        factor = factor / 16
