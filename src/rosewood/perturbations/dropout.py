"""A second pass with fresh dropout."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import nn

from rosewood.models.modes import has_dropout
from rosewood.protocol import Batch, Call, Cost, Output, Perturbation, Perturber, Run

if TYPE_CHECKING:
    from rosewood.recipe import Stage


@dataclass(frozen=True)
class Dropout(Perturbation):
    """The same input once more; the two passes differ by the model's own dropout (R-Drop, Liang et al., 2021)."""

    repeatable = True

    def cost(self, stage: Stage) -> Cost:
        return Cost(forward=1)

    def memory(self) -> str:
        return "second graph"

    def explain(self, stage: Stage) -> list[str]:
        return ["x' = x, with fresh dropout"]

    def problems_with(self, model: nn.Module) -> list[str]:
        if has_dropout(model):
            return []
        return [
            f"perturbation dropout compares two passes that differ by dropout only, and {type(model).__name__} has "
            "none, so they would be equal: set a dropout rate in the model's config, or choose another perturbation"
        ]

    def start(self, run: Run) -> SecondPass:
        return SecondPass()


class SecondPass(Perturber):
    """Runs the model again; what comes out is as clean as the first pass."""

    def view(self, call: Call, batch: Batch, clean: Output | None) -> Output:
        return call(batch)

    def again(self, call: Call, batch: Batch) -> Output:
        return call(batch)
