"""A model's weights on an excursion: to any place near by, and home again bit for bit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from rosewood.errors import RunError
from rosewood.tensors.flat import Flat, flat_like


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
