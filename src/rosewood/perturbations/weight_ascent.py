"""The weights moved, for one pass, to where the loss is higher."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from rosewood.models.sites import word_embedding
from rosewood.protocol import Batch, Call, Cost, Output, Perturbation, Perturber, Run
from rosewood.tensors.shards import parts, replaced, stacked_norms

if TYPE_CHECKING:
    from rosewood.recipe import Stage


@dataclass(frozen=True)
class WeightAscent(Perturbation):
    """w + e with e = rho g / |g|, g the gradient of the loss (SAM, Foret et al., 2021, Eq. 2; AdvWeight).

    |g| is one norm over all trainable tensors but the word embeddings, which do not move, as in the RoAST
    repository. Under gradient accumulation each micro-batch, of all processes together, ascends by its own gradient.
    """

    rho: Annotated[float, Field(ge=0)] = 0.05

    def cost(self, stage: Stage) -> Cost:
        return Cost(forward=1)

    def memory(self) -> str:
        return "weight copy, gradient copy"

    def explain(self, stage: Stage) -> list[str]:
        return [f"w' = w + {self.rho:g} g / |g|, g = grad CE(f(x; w), y), word embeddings left out"]

    def start(self, run: Run) -> WeightAscender:
        return WeightAscender(self, run)


class WeightAscender(Perturber):
    """Moves the weights, and back to the same bits."""

    def __init__(self, settings: WeightAscent, run: Run) -> None:
        self.settings = settings
        self._model = run.model
        words = _word_weights(run.model)
        self._weights = {name: p for name, p in run.trainable().items() if id(p) not in words}

    def view(self, call: Call, batch: Batch, clean: Output | None) -> Output:
        """A pass over the same batch, to be run inside `ascended`."""
        return call(batch)

    @contextmanager
    def ascended(self, gradients: Mapping[str, Tensor]) -> Iterator[None]:
        """Inside, the weights are those a step up the gradient, which may have any positive factor."""
        names = [name for name in self._weights if name in gradients]
        assert names, "weight_ascent was given no gradient to follow"
        weights: list[Tensor] = [self._weights[name] for name in names]
        slopes = [gradients[name] for name in names]
        length = torch.linalg.vector_norm(stacked_norms(slopes))
        length.clamp_(min=torch.finfo(length.dtype).tiny)  # not a sum, which would depend on that factor
        with torch.no_grad():
            # Where the gradient has overflowed, as fp16's may, nothing moves: the scaler skips the step.
            moves = torch._foreach_mul(parts(slopes), self.settings.rho / length)
            higher = [move.nan_to_num_(0.0) for move in moves]
            torch._foreach_add_(higher, parts(weights))
        with replaced(self._model, weights, higher):
            yield


def _word_weights(model: nn.Module) -> set[int]:
    """The ids of the word embedding's parameters, those of an adapter on it included, if the model says which it is."""
    try:
        return {id(parameter) for parameter in word_embedding(model).parameters()}
    except (AttributeError, NotImplementedError):
        return set()
