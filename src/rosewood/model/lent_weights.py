"""A model that plays its own teacher: for a pass it gets other weights, and gives them back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor, nn

from rosewood.tensors.shards import parts, replaced


class LentWeights:
    """Lends a model other values for some of its parameters, so that a teacher needs no body of its own."""

    def __init__(self, model: nn.Module, parameters: Sequence[Tensor]) -> None:
        self._model, self._parameters = model, list(parameters)
        self._modules = list(model.modules())  # walking through a model takes milliseconds

    @contextmanager
    def lent(self, values: Sequence[Tensor], training: bool = False) -> Iterator[None]:
        """Inside, the parameters have these values, and dropout is on only while `training`; then all is as before."""
        modes = [module.training for module in self._modules]
        self._model.train(training)
        try:
            with replaced(self._model, self._parameters, parts(values)):
                yield
        finally:
            for module, mode in zip(self._modules, modes, strict=True):
                module.training = mode
