"""Directions through weight space, and a model's weights moved along them and back, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor, nn

from rosewood.errors import RunError
from rosewood.tensors.shards import Flat, flat_like

Normalisation = Literal["filter", "whole"]
TINY = 1e-10


@torch.no_grad()
def random_directions(
    model: nn.Module, count: int = 2, seed: int = 0, normalisation: Normalisation = "filter"
) -> list[Flat]:
    """Gaussian directions; models with the same shapes get the same ones, each scaled by its own weights.

    `filter`: each row of a tensor with two axes or more gets the norm of the weights' row, and tensors with one axis
    (biases, layer norms) do not move (Li et al., NeurIPS 2018, "Visualizing the Loss Landscape of Neural Nets").
    `whole`: the direction as one vector gets the norm of all weights as one vector, which is how ROSE's formula reads;
    its text names the former.
    """
    weights = [parameter.data for parameter in weights_of(model)]
    generator = torch.Generator().manual_seed(seed)  # of the processor: the same numbers on every device
    return [_direction(weights, generator, normalisation) for _ in range(count)]


def _direction(weights: Sequence[Tensor], generator: torch.Generator, normalisation: Normalisation) -> Flat:
    direction = flat_like(weights)
    for piece in direction.pieces:
        piece.copy_(torch.randn(piece.shape, generator=generator, dtype=piece.dtype))
    if normalisation == "whole":
        norm = torch.stack([weight.norm() for weight in weights]).norm()
        direction.whole.mul_(norm / (direction.whole.norm() + TINY))
    else:
        for piece, weight in zip(direction.pieces, weights, strict=True):
            _scale_rows(piece, weight)
    return direction


def _scale_rows(piece: Tensor, weight: Tensor) -> None:
    if weight.dim() < 2:
        piece.zero_()
        return
    rows = piece.flatten(1)
    rows.mul_((weight.flatten(1).norm(dim=1) / (rows.norm(dim=1) + TINY)).unsqueeze(1))


class Excursion:
    """The weights of a model in one flat buffer that may be written; those it had at home are not touched."""

    def __init__(self, home: Sequence[Tensor], here: Flat) -> None:
        self._home, self._here = list(home), here

    def go(self, directions: Sequence[Flat], steps: Sequence[float]) -> None:
        """To home + the sum of each step times its direction, from home and not from the last place."""
        torch._foreach_copy_(self._here.pieces, self._home)
        for direction, step in zip(directions, steps, strict=True):
            self._here.whole.add_(direction.whole, alpha=step)

    def go_between(self, other: Sequence[Tensor], share: float) -> None:
        """To (1 - share) home + share other: exactly home at 0, and exactly the other at 1."""
        torch._foreach_copy_(self._here.pieces, self._home)
        torch._foreach_lerp_(self._here.pieces, list(other), share)


@contextmanager
def excursion(model: nn.Module) -> Iterator[Excursion]:
    """Inside, the model computes with weights that may be moved; however it ends, they are as they were.

    The model's own tensors are put aside, not copied, so coming home is no arithmetic. This takes one buffer of the
    size of the weights; tied weights are in it once.
    """
    parameters = weights_of(model)
    home = [parameter.data for parameter in parameters]
    with torch.no_grad():
        here = flat_like(home)
        trip = Excursion(home, here)
        trip.go([], [])
        try:
            for parameter, piece in zip(parameters, here.pieces, strict=True):
                parameter.data = piece
            yield trip
        finally:
            for parameter, own in zip(parameters, home, strict=True):
                parameter.data = own


def weights_of(model: nn.Module) -> list[nn.Parameter]:
    """Every parameter once, refused if small steps would be lost to rounding."""
    parameters = list(model.parameters())
    types = {parameter.dtype for parameter in parameters}
    if len(types) != 1 or not types <= {torch.float32, torch.float64}:
        found = ", ".join(sorted(str(each).removeprefix("torch.") for each in types)) or "no weights"
        raise RunError(
            f"expected a model whose weights are all float32 or all float64, got {found}: call model.float()"
        )
    return parameters
