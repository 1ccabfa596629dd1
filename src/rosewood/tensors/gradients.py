"""Gradients of a loss with respect to some tensors, and sketches of many gradients in little memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from transformers.pytorch_utils import Conv1D

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


Hook = Callable[[nn.Module, tuple[Tensor, ...], Tensor], Tensor]


class GradientSketch:
    """Puts a product R S beside each weight matrix W, R random directions of its outputs and S zero.

    Nothing that the model computes changes, but the gradient by S is R^T times that of W, `(rank, inputs)`. Its
    squared norm is, on average over R, the squared norm of W's gradient, at rank / outputs of the cost; from rank =
    outputs on it is that norm. Being linear, sketches of micro-batches add up to the sketch of the summed gradient.
    The columns of R are orthogonal and stay the same until `undo`. Vectors need no sketch: they are read as they are.
    """

    def __init__(self, model: nn.Module, names: Sequence[str], rank: int, generator: torch.Generator) -> None:
        self.stand_ins: dict[str, Tensor] = {}
        self._hooks = []
        for name, (weight, users) in _matrices(model, names).items():
            outputs, inputs = weight.shape if isinstance(users[0], nn.Linear) else weight.shape[::-1]
            directions = _random_directions(outputs, min(rank, outputs), generator).to(weight)
            stand_in = torch.zeros(min(rank, outputs), inputs, dtype=weight.dtype, device=weight.device)
            self.stand_ins[name] = stand_in.requires_grad_()
            hook: Hook = partial(_add_product, directions, stand_in)
            self._hooks += [user.register_forward_hook(hook) for user in users]

    def forget(self) -> None:
        """Drop what backwards of other terms have left in the stand-ins."""
        for stand_in in self.stand_ins.values():
            stand_in.grad = None

    def undo(self) -> None:
        for hook in self._hooks:
            hook.remove()


def _add_product(
    directions: Tensor, stand_in: Tensor, module: nn.Module, args: tuple[Tensor, ...], output: Tensor
) -> Tensor:
    if not torch.is_grad_enabled():
        return output
    return output + linear(linear(args[0], stand_in), directions)


def _random_directions(outputs: int, rank: int, generator: torch.Generator) -> Tensor:
    """Orthogonal columns `(outputs, rank)`, scaled so that R R^T is the identity on average."""
    normal = torch.randn(outputs, rank, generator=generator, device=generator.device, dtype=torch.float64)
    return torch.linalg.qr(normal).Q * math.sqrt(outputs / rank)


def _matrices(model: nn.Module, names: Sequence[str]) -> dict[str, tuple[nn.Parameter, list[nn.Module]]]:
    """The named parameters that are matrices, each with the linear layers whose weight it is."""
    users: dict[int, list[nn.Module]] = {}
    for module in model.modules():
        if isinstance(module, nn.Linear | Conv1D):
            users.setdefault(id(module.weight), []).append(module)
    parameters = dict(model.named_parameters())
    chosen = {name: parameters[name] for name in names if parameters[name].dim() > 1}
    return {name: (weight, users.get(id(weight), [])) for name, weight in chosen.items()}


def sketch_problems(model: nn.Module, names: Sequence[str], user: str) -> list[str]:
    """Why the gradients of these parameters cannot be sketched; nothing if they can."""
    foreign = [name for name, (_, users) in _matrices(model, names).items() if not users]
    if not foreign:
        return []
    more = f" and {len(foreign) - 3} more" if len(foreign) > 3 else ""
    return [
        f"{user} sketches the weights of linear layers (nn.Linear, GPT-2's Conv1D) and reads vectors as they are; in "
        f"{type(model).__name__} it can do neither with {', '.join(foreign[:3])}{more}: leave it 0, or choose other "
        "candidates with selection.parameters"
    ]
