"""The task's own loss, with a small part of every label given to all classes alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from pydantic import Field
from torch import nn

from rosewood.objectives.cross_entropy import CrossEntropy
from rosewood.protocol import Batch, Call, Pass, Passes, Perturber, Progress
from rosewood.tensors.divergences import divergence_problems, log_probabilities

if TYPE_CHECKING:
    from rosewood.recipe import Stage


@dataclass(frozen=True)
class LabelSmoothing(CrossEntropy):
    """Cross-entropy with smoothed labels (Szegedy et al., CVPR 2016).

    L = (1 - smoothing) CE(f(x), y) - smoothing mean_k log p_k, which is the cross-entropy with the label's class at
    1 - smoothing + smoothing / K of K classes and the others at smoothing / K. Class weights act on the first part.
    """

    smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.1

    def run(self, call: Call, batch: Batch, perturb: Perturber | None, at: Progress) -> Passes:
        for result in super().run(call, batch, perturb, at):
            term, clean = result.terms[0], result.clean
            logs = [log_probabilities(output.predictions()) for output in clean]
            # A sum over no token at all is 0, where a mean is not a number.
            spread = sum(-each.mean(-1).sum() / max(1, each[..., 0].numel()) for each in logs) / len(clean)
            value = (1 - self.smoothing) * term.value + self.smoothing * spread
            yield Pass([term._replace(value=value)], clean)

    def explain(self, stage: Stage) -> list[str]:
        smoothed = f"CE(f(x), {1 - self.smoothing:g} y + {self.smoothing:g} / K)"
        return [line.replace("CE(f(x), y)", smoothed) for line in super().explain(stage)]

    def problems_with(self, model: nn.Module) -> list[str]:
        return divergence_problems(model, "objective label_smoothing")
