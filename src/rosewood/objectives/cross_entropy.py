"""The task's own loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import torch
from pydantic import Field

from rosewood.protocol import Batch, Call, Cost, Objective, Pass, Passes, Perturber, Progress, Term

if TYPE_CHECKING:
    from rosewood.recipe import Stage


@dataclass(frozen=True)
class CrossEntropy(Objective):
    """The loss that model and Trainer compute, averaged over `passes` forward passes with fresh dropout.

    One pass is ordinary fine-tuning. Two passes are what the official ROSE code does in its first-order and
    ensemble variants: the passes that measure dropout sensitivity also give the loss.
    """

    passes: Annotated[int, Field(ge=1)] = 1

    def run(self, call: Call, batch: Batch, perturb: Perturber | None, at: Progress) -> Passes:
        clean = [call(batch) for _ in range(self.passes)]
        loss = clean[0].loss if self.passes == 1 else torch.stack([output.loss for output in clean]).mean()
        yield Pass([Term("ce", loss, 1.0)], clean)

    def clean_passes(self, stage: Stage) -> int:
        return self.passes

    def cost(self, stage: Stage) -> Cost:
        return Cost(forward=self.passes, backward=self.passes)

    def explain(self, stage: Stage) -> list[str]:
        if self.passes == 1:
            return ["ce = CE(f(x), y)"]
        return [f"ce = mean of CE(f(x), y) over {self.passes} passes with fresh dropout"]

    def problems(self, stage: Stage) -> list[str]:
        if stage.perturbation is None:
            return []
        return [
            f"objective {self.name} never looks at a perturbed input, so perturbation {stage.perturbation.name} "
            "would do nothing: choose the objective consistency, or leave the perturbation out"
        ]
