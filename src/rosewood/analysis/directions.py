"""Random directions through the space of weights, on the scale of the weights themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from rosewood.analysis.excursion import weights_of
from rosewood.tensors.flat import Flat, flat_like

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
