"""Gradients that components take by themselves, out of the optimiser's sight."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from rosewood.tensors.shards import gradients, stacked_norms

LossScale = Callable[[Tensor], Tensor]


def slopes(
    loss: Tensor, tensors: Sequence[Tensor], scale: LossScale | None = None, leaves: Sequence[Tensor] = ()
) -> list[Tensor]:
    """The gradients of a loss with respect to some tensors, zero where it does not depend on one.

    With a loss scale, as fp16 has one, they are taken of the scaled loss, so that small ones do not vanish on the way,
    and divided by the scale. The trainer skips a step whose gradients overflow and lowers the scale; here they are
    taken again of a smaller multiple. `leaves` are those of `shards.gradients`.
    """
    if scale is None:
        return _filled(gradients(loss, tensors, leaves), tensors)
    factor = scale(torch.ones_like(loss))
    while True:
        found = _filled(gradients(loss * factor, tensors, leaves, retain_graph=True), tensors)
        if factor <= 1 or stacked_norms(found).isfinite().all():
            return list(torch._foreach_div(found, factor.item()))
        factor = factor / 16


def _filled(found: Sequence[Tensor | None], tensors: Sequence[Tensor]) -> list[Tensor]:
    return [torch.zeros_like(tensor) if one is None else one for tensor, one in zip(tensors, found, strict=True)]
