"""The task's own loss, of logits that are divided by a temperature while the model trains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from rosewood.models.modes import IGNORED
from rosewood.objectives.cross_entropy import CrossEntropy
from rosewood.protocol import Batch, Call, Output, Passes, Perturber, Progress
from rosewood.tensors.divergences import divergence_problems, log_probabilities

if TYPE_CHECKING:
    from rosewood.recipe import Stage


@dataclass(frozen=True)
class Temperature(CrossEntropy):
    """Cross-entropy of softmax(f(x) / T); the trained model is used with its logits as they are.

    So `temperature` is T of training divided by that of testing: only their ratio matters, because the logits may have
    any scale. Above 1 a model must bring its logits T times as far apart to become as certain, and is T times surer
    of itself when it is tested. The answers are the same at any temperature of testing.
    """

    reads_labels = True

    temperature: Annotated[float, Field(gt=0)] = 5.0

    def run(self, call: Call, batch: Batch, perturb: Perturber | None, at: Progress) -> Passes:
        for result in super().run(call, batch, perturb, at):
            losses = [self._loss(output, batch["labels"]) for output in result.clean]
            value = losses[0] if len(losses) == 1 else torch.stack(losses).mean()
            yield result._replace(terms=[result.terms[0]._replace(value=value)])

    def _loss(self, output: Output, labels: Tensor) -> Tensor:
        logs = log_probabilities(output.predictions() / self.temperature)
        if labels.is_floating_point():  # yes or no to each of several, a mean over them
            return -(logs[..., 0] * labels + logs[..., 1] * (1 - labels)).mean()
        if output.counted is not None:
            counts = labels != IGNORED
            # A causal language model predicts the label of the next position.
            labels = (labels if torch.equal(counts, output.counted) else labels.roll(-1, dims=1))[output.counted]
        # A sum over no token at all is 0, where a mean is not a number.
        return -logs.gather(-1, labels.unsqueeze(-1)).sum() / max(1, len(labels))

    def explain(self, stage: Stage) -> list[str]:
        return [line.replace("f(x)", f"f(x) / {self.temperature:g}") for line in super().explain(stage)]

    def problems_with(self, model: nn.Module) -> list[str]:
        return divergence_problems(model, "objective temperature")
