"""Smoothed labels are those of PyTorch's own cross-entropy."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn import functional

from replay import replay, same_weights
from rosewood.recipe import load_recipe
from tiny import TinyData, tiny_bert, trained


@pytest.mark.parametrize("passes", [1, 2])
def test_training_is_that_with_the_cross_entropy_of_pytorch(passes: int, tmp_path: Path) -> None:
    recipe = load_recipe("label-smoothing", {"objective.smoothing": 0.2, "objective.passes": passes})
    data, settings = TinyData(24, classes=3), {"per_device_train_batch_size": 4, "max_steps": 3, "weight_decay": 0.0}
    trainer = trained(recipe, tmp_path, model=tiny_bert(num_labels=3), data=data, **settings)
    model = tiny_bert(num_labels=3)

    def backward(batch: dict[str, torch.Tensor], step: int, micro_batch: int) -> None:
        inputs = {key: value for key, value in batch.items() if key != "labels"}
        losses = [
            functional.cross_entropy(model(**inputs).logits, batch["labels"], label_smoothing=0.2)
            for _ in range(passes)
        ]
        (sum(losses) / passes).backward()  # type: ignore[union-attr]

    same_weights(trainer.model, replay(trainer, model, backward, accumulation=1), 1e-10)
