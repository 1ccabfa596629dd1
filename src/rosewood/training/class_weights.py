"""Class weights: rows of some classes count more in the task's loss than others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rosewood.config.settings import BALANCED, ClassWeights
from rosewood.errors import RunError


def resolved_weights(chosen: ClassWeights, labels: Sequence[str], rows: Sequence[int]) -> list[float]:
    """The weight of each label, in order, scaled so that the mean over the training rows is 1.

    So the loss keeps its size beside the other terms of a recipe. Balanced weights give all classes that occur the same
    say: rows / (classes x rows of the class), as scikit-learn has it.
    """
    counts = np.bincount(np.asarray(rows), minlength=len(labels)).astype(np.float64)
    if chosen == BALANCED:
        weights = np.where(counts > 0, 1 / np.maximum(counts, 1), 1 / len(rows))
    else:
        assert not isinstance(chosen, str)
        if set(chosen) != set(labels):
            raise RunError(
                f"class weights name {', '.join(chosen)}; the labels are {', '.join(labels)}: give one number for each"
            )
        weights = np.array([chosen[label] for label in labels])
    scaled: list[float] = (weights * counts.sum() / (weights * counts).sum()).tolist()
    return scaled


class WeightedLoss:
    """The cross-entropy of each row times the weight of its class, a mean over the rows of a batch.

    It is divided by the number of rows and not by the sum of their weights: then a batch may be cut into micro-batches,
    or shared by processes, and the mean stays the same.
    """

    def __init__(self, weights: Sequence[float]) -> None:
        if not all(0 < weight < float("inf") for weight in weights):
            raise RunError(f"class weights are numbers above 0, got {', '.join(map(str, weights))}")
        self.weights = torch.tensor(weights, dtype=torch.float64)

    def __call__(self, model: nn.Module, inputs: Mapping[str, Any]) -> tuple[Tensor, Any]:
        """The weighted loss, and what the model puts out."""
        labels = inputs.get("labels")
        if labels is None or labels.dim() != 1 or labels.is_floating_point():
            raise RunError("class weights need one label a text: leave them out")
        outputs = model(**inputs)
        logits: Tensor = outputs["logits"] if isinstance(outputs, dict) else outputs[1]
        if logits.shape[-1] != len(self.weights):
            raise RunError(f"there are {len(self.weights)} class weights, and the model has {logits.shape[-1]} outputs")
        losses = functional.cross_entropy(logits, labels, reduction="none")
        return (losses * self.weights.to(losses)[labels]).mean(), outputs
