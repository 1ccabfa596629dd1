"""A span of tokens cut out of every layer's feed-forward output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from rosewood.models.sites import FeedForwards, ffn_problems, real_tokens
from rosewood.protocol import Batch, Call, Cost, Output, Perturbation, Perturber, Run
from rosewood.tensors import draws

if TYPE_CHECKING:
    from rosewood.recipe import Stage


@dataclass(frozen=True)
class HiddenCut(Perturbation):
    """Sets a span of tokens to zero in every feed-forward output, in place of dropout (HiddenCut, Chen et al., 2021).

    The span has `cut_ratio` of the sentence's tokens, at least one; it starts at a token drawn, for each example and
    layer, from the `start_share` of tokens that receive most attention (before dropout, summed over heads and
    queries), and ends at the sentence's end at the latest.

    Deviations: queries that are padding do not count as attention, so that the padding of a batch changes nothing.
    The model runs with eager attention from the start of training on, because fused attention shows no weights.
    """

    cut_ratio: Annotated[float, Field(gt=0, le=1)] = 0.1
    start_share: Annotated[float, Field(gt=0, le=1)] = 0.4

    def cost(self, stage: Stage) -> Cost:
        return Cost(forward=1)

    def memory(self) -> str:
        return "second graph, attention weights"

    def explain(self, stage: Stage) -> list[str]:
        return [
            f"f(x'): in every layer, a span of {self.cut_ratio:g} of the tokens is zero in the feed-forward output",
            f"it starts at one of the {self.start_share:g} of tokens that receive most attention",
        ]

    def problems_with(self, model: nn.Module) -> list[str]:
        return ffn_problems(model, "perturbation hidden_cut")

    def start(self, run: Run) -> HiddenCutter:
        return HiddenCutter(self, run.model)


class HiddenCutter(Perturber):
    """Draws one number for each example and layer, and cuts the span that it means."""

    def __init__(self, settings: HiddenCut, model: nn.Module) -> None:
        self.settings = settings
        model.set_attn_implementation("eager")  # type: ignore[operator]
        self._networks = FeedForwards(model)
        self._layers: int = model.config.num_hidden_layers  # type: ignore[union-attr, assignment]

    def view(self, call: Call, batch: Batch, clean: Output | None) -> Output:
        draw = draws.uniform(batch, self._layers)
        real = real_tokens(batch)

        def cut(layer: int, output: Tensor, attention: Tensor) -> Tensor:
            span = cut_span(attention, real, draw[:, layer], self.settings.cut_ratio, self.settings.start_share)
            return output.masked_fill(span.unsqueeze(-1), 0)

        with self._networks.changed(cut):
            return call(batch)


def cut_span(attention: Tensor, real: Tensor, draw: Tensor, ratio: float, share: float) -> Tensor:
    """Which tokens are cut, `(batch, tokens)`, from attention `(batch, heads, queries, keys)` and a draw in [0, 1)."""
    length = real.sum(1)
    span = _at_least_one(length, ratio)
    starts = _at_least_one(length, share)
    # Half precision would make ties of the sums.
    attention = attention.to(torch.promote_types(attention.dtype, torch.float32))
    received = (attention * real[:, None, :, None]).sum((1, 2)).masked_fill(~real, -1)
    most_attended = received.argsort(dim=1, descending=True, stable=True)
    choice = (draw * starts).long().clamp(max=starts - 1)
    place = real.cumsum(1) - 1  # among the real tokens, wherever the padding is
    start = place.gather(1, most_attended.gather(1, choice.unsqueeze(1)))
    return (place >= start) & (place < start + span.unsqueeze(1)) & real


def _at_least_one(length: Tensor, share: float) -> Tensor:
    # The small number reads 0.1 * 30 as 3.
    return torch.floor(length * share + 1e-6).long().clamp(min=1)
