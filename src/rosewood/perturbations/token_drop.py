"""Whole tokens left out of the encoder's input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import torch
from pydantic import Field
from torch import nn

from rosewood.models.sites import Site, real_tokens, site_problems
from rosewood.protocol import Batch, Call, Cost, Output, Perturbation, Perturber, Run
from rosewood.tensors import draws

if TYPE_CHECKING:
    from rosewood.recipe import Stage


@dataclass(frozen=True)
class TokenDrop(Perturbation):
    """Sets the whole vector of a token in the encoder's input to zero with some probability (WordDrop).

    The RoAST repository, whose baseline this is, may drop [CLS] and [SEP] too, and does not say with which
    probability. `spared_token_ids` are never dropped, for example BERT's [101, 102]. Padding stays as it is.
    """

    probability: Annotated[float, Field(ge=0, lt=1)] = 0.1
    spared_token_ids: tuple[int, ...] = ()

    def cost(self, stage: Stage) -> Cost:
        return Cost(forward=1)

    def memory(self) -> str:
        return "second graph"

    def explain(self, stage: Stage) -> list[str]:
        spared = f", never for the tokens {list(self.spared_token_ids)}" if self.spared_token_ids else ""
        return [f"f(x') = f(d e), e the encoder input, d = 0 with probability {self.probability:g} a token{spared}"]

    def problems_with(self, model: nn.Module) -> list[str]:
        return site_problems(model, "encoder", "perturbation token_drop")

    def start(self, run: Run) -> TokenDropper:
        return TokenDropper(self, run.model)


class TokenDropper(Perturber):
    """Draws which tokens are dropped and runs the model without them."""

    def __init__(self, settings: TokenDrop, model: nn.Module) -> None:
        self.settings = settings
        self._place = Site("encoder", model)

    def view(self, call: Call, batch: Batch, clean: Output | None) -> Output:
        ids = batch["input_ids"]
        dropped = (draws.uniform(batch, ids.shape[1]) < self.settings.probability) & real_tokens(batch)
        if self.settings.spared_token_ids:
            dropped &= ~torch.isin(ids, torch.tensor(self.settings.spared_token_ids, device=ids.device))
        with self._place.changed(lambda hidden: hidden.masked_fill(dropped.unsqueeze(-1), 0)):
            return call(batch)
