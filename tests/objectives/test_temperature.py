"""A temperature divides the logits of the loss, and of nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from replay import replay, same_weights
from rosewood.errors import RunError
from rosewood.models.modes import Predictions
from rosewood.objectives.temperature import Temperature
from rosewood.recipe import load_recipe
from rosewood.training.trainer import RobustTrainer
from tiny import TinyData, arguments, tiny_bert, trained


@pytest.mark.parametrize("passes", [1, 2])
def test_training_is_that_with_the_cross_entropy_of_divided_logits(passes: int, tmp_path: Path) -> None:
    recipe = load_recipe("temperature", {"objective.temperature": 4.0, "objective.passes": passes})
    data, settings = TinyData(24, classes=3), {"per_device_train_batch_size": 4, "max_steps": 3, "weight_decay": 0.0}
    trainer = trained(recipe, tmp_path, model=tiny_bert(num_labels=3), data=data, **settings)
    model = tiny_bert(num_labels=3)

    def backward(batch: dict[str, Tensor], step: int, micro_batch: int) -> None:
        inputs = {key: value for key, value in batch.items() if key != "labels"}
        for _ in range(passes):
            (functional.cross_entropy(model(**inputs).logits / 4, batch["labels"]) / passes).backward()

    same_weights(trainer.model, replay(trainer, model, backward), 1e-10)


@pytest.mark.parametrize("kind", ["token", "causal", "several"])
def test_at_1_the_loss_is_the_models_own_for_every_kind_of_label(kind: str) -> None:
    from transformers import BertConfig, BertForTokenClassification, GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    ids = torch.randint(5, 30, (3, 6))
    small = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    if kind == "token":
        model = BertForTokenClassification(BertConfig(vocab_size=30, num_labels=4, **small))
        labels = torch.randint(0, 4, (3, 6))
    elif kind == "causal":
        model = GPT2LMHeadModel(GPT2Config(vocab_size=30, n_embd=8, n_layer=1, n_head=1, n_positions=8))
        labels = ids.clone()
    else:
        model = tiny_bert(num_labels=3, problem_type="multi_label_classification")
        labels = torch.randint(0, 2, (3, 3)).double()
    if kind != "several":
        labels[0, :2] = labels[2, 3:] = -100
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}
    model.eval()
    found = model(**batch)
    output = Predictions(model).of(found.loss, found.logits, batch)
    torch.testing.assert_close(Temperature(temperature=1.0)._loss(output, labels), found.loss)


def test_class_weights_are_refused(tmp_path: Path) -> None:
    given = {"model": tiny_bert(), "args": arguments(tmp_path), "train_dataset": TinyData()}
    with pytest.raises(RunError, match="class weights and objective temperature both compute the loss"):
        RobustTrainer(**given, recipe="temperature", class_weights=[1.0, 2.0])
