"""L2-SP: a penalty on the distance from the pre-trained weights."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from rosewood.models.adapters import change_problems, low_rank_changes
from rosewood.models.parameters import PretrainedTether, pretrained_names
from rosewood.protocol import Anchor, Progress, Run, Term, Weight, weight_at
from rosewood.tensors.shards import parts, stacked_norms, whole

if TYPE_CHECKING:
    from rosewood.recipe import Stage

FLOOR = 1e-10


@dataclass(frozen=True)
class L2SP(Anchor):
    """Adds `weight` times the distance between the weights and their pre-trained values to the loss, once per step.

    `norm="squared"` is the sum of squares (L2-SP: Li et al., ICML 2018; WConsol of the RoAST paper), whose gradient
    2 (theta - theta0) grows with the distance. `norm="unsquared"` is the global norm sqrt(1e-10 + sum) (pre-trained
    weight decay of the RIFT paper), whose gradient has norm 1 wherever the weights are; the constant keeps it finite
    at theta0, where it is 0.

    `parameters="matrices"` leaves out biases and layer norms, that is all parameters of one dimension;
    `parameters="all"` takes the whole base model with its pooler. The head has no pre-trained value and is never
    anchored. Li et al. add a plain decay of the head: that is the optimiser's weight_decay here.

    A LoRA adapter takes a weight from W0 to W0 + s B A, so what it adds to the sum is |s B A|^2, for either choice of
    `parameters`. It is computed as s^2 tr((B^T B)(A A^T)), which never forms a matrix of the weight's size. Where the
    weight below the adapter is not at its pre-trained value, because the model was fine-tuned before, its distance D
    from there adds |D|^2 + 2 s tr(D^T B A); so do the distances of weights that are frozen, which are constants.
    """

    needs_pretrained = True
    weight_terms = True

    norm: Literal["squared", "unsquared"] = "squared"
    weight: Weight = 0.01
    parameters: Literal["matrices", "all"] = "matrices"

    def names(self, model: nn.Module) -> list[str]:
        """The parameters that are held back."""
        return self.chosen(model, pretrained_names(model))

    def chosen(self, model: nn.Module, names: Iterable[str]) -> list[str]:
        """Those of the parameters that are of the kind that counts."""
        dimensions = {name: parameter.dim() for name, parameter in model.named_parameters()}
        return [name for name in names if self.parameters == "all" or dimensions[name] > 1]

    def problems_with(self, model: nn.Module) -> list[str]:
        if self.names(model) or low_rank_changes(model):
            return change_problems(model, "anchor l2_sp")
        return [
            f"anchor l2_sp ties weights to their pre-trained values, but {type(model).__name__} has no trainable "
            f"parameter of that kind (parameters={self.parameters}) in its base model: leave the anchor out"
        ]

    def memory(self) -> str:
        return "pre-trained weights, their differences"

    def explain(self, stage: Stage) -> list[str]:
        which = "weight matrices of the base model" if self.parameters == "matrices" else "all of the base model"
        square = "|theta - theta0|^2" if self.norm == "squared" else f"sqrt({FLOOR:g} + |theta - theta0|^2)"
        return [f"loss += {self.weight:g} * l2_sp,  l2_sp = {square}  ({which})"]

    def start(self, run: Run) -> L2SPTether:
        return L2SPTether(self, run)


class L2SPTether(PretrainedTether):
    """Computes the distance; holds one buffer of the parameters' size, because fresh memory costs more than the sum."""

    def __init__(self, settings: L2SP, run: Run) -> None:
        super().__init__(run, settings.names(run.model))
        self._settings = settings
        named, changes = dict(run.model.named_parameters()), low_rank_changes(run.model)
        self._products = [(named[c.down], named[c.up], c.scaling) for c in changes]
        self._constant = 0.0
        self._away: list[tuple[Tensor, Tensor, Tensor, float]] = []
        adapted = {change.base: change for change in changes}
        for name in settings.chosen(run.model, run.frozen):
            away = _wide(whole(named[name].detach())) - _wide(run.frozen[name])
            self._constant += float(away.double().square().sum())
            if name in adapted:
                c = adapted[name]
                self._away.append((away.T if c.transposed else away, named[c.down], named[c.up], c.scaling))
        self._differences = [torch.empty_like(parameter) for parameter in self.parameters]

    def weight_terms(self, at: Progress) -> list[Term]:
        squares: list[Tensor] = [scaling**2 * squared_product_norm(up, down) for down, up, scaling in self._products]
        for away, down, up, scaling in self._away:
            squares.append(2 * scaling * ((away @ _wide(whole(down)).T) * _wide(whole(up))).sum())
        if self.parameters:
            squares.append(SquaredDistance.apply(self._differences, self.pretrained, *self.parameters))
        value = squares[0] if len(squares) == 1 else torch.stack(squares).sum()
        if self._constant:
            value = value + self._constant
        if self._settings.norm == "unsquared":
            value = (value + FLOOR).sqrt()
        return [Term("l2_sp", value, weight_at(self._settings.weight, at))]


def _wide(tensor: Tensor) -> Tensor:
    """In single precision, or the tensor's own if that is better."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def squared_product_norm(up: Tensor, down: Tensor) -> Tensor:
    """|B A|^2 of B `(outputs, rank)` and A `(rank, inputs)`, by way of two matrices `(rank, rank)`."""
    dtype = torch.promote_types(up.dtype, torch.float32)
    up, down = whole(up).flatten(1).to(dtype), whole(down).flatten(1).to(dtype)
    return ((up.T @ up) * (down @ down.T)).sum()


class SquaredDistance(torch.autograd.Function):
    """sum |theta - theta0|^2 as a single node of the graph, with its gradient 2 (theta - theta0) in closed form.

    The differences are left in `scratch`, which the backward turns into the gradients: it can run only once.
    """

    @staticmethod
    def forward(ctx: Any, scratch: list[Tensor], origin: list[Tensor], *parameters: Tensor) -> Tensor:
        own = parts(scratch)
        torch._foreach_copy_(own, parts(parameters))
        torch._foreach_sub_(own, parts(origin))
        ctx.scratch = scratch
        return stacked_norms(scratch).square().sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        torch._foreach_mul_(parts(ctx.scratch), 2 * gradient)
        return (None, None, *ctx.scratch)
