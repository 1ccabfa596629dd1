"""Models and data small enough that a test can train on them in a blink."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, TrainingArguments

from rosewood.training.trainer import RobustTrainer
from tiny_substitutes import Substituted, quick

VOCABULARY = 50


def tiny_bert(
    layers: int = 2, dropout: float = 0.1, dtype: torch.dtype = torch.float64, seed: int = 0, **settings: Any
) -> BertForSequenceClassification:
    """A BERT of two layers with random weights; float64 and eager attention, so that oracles can be exact."""
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=32,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        attn_implementation="eager",
        **settings,
    )
    return BertForSequenceClassification(config).to(dtype)


class TinyData(Dataset):
    """Random token sequences of equal length with random labels."""

    def __init__(self, size: int = 64, length: int = 8, classes: int = 2, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.ids = torch.randint(5, VOCABULARY, (size, length), generator=generator)
        self.labels = torch.randint(0, classes, (size,), generator=generator)

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, i: int) -> dict[str, torch.Tensor]:
        return {
            "input_ids": self.ids[i],
            "attention_mask": torch.ones_like(self.ids[i]),
            "labels": self.labels[i],
        }


def arguments(directory: Any, **settings: Any) -> TrainingArguments:
    defaults: dict[str, Any] = {
        "output_dir": str(directory),
        "per_device_train_batch_size": 4,
        "max_steps": 10,
        "learning_rate": 1e-3,
        "weight_decay": 0.01,
        "adam_beta2": 0.98,
        "adam_epsilon": 1e-6,
        "report_to": "none",
        "save_strategy": "no",
        "logging_steps": 5,
        "disable_tqdm": True,
        "use_cpu": True,
        "seed": 0,
    }
    return TrainingArguments(**(defaults | settings))


def weights(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def differing(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> Iterator[str]:
    assert first.keys() == second.keys()
    return (name for name in first if not torch.equal(first[name], second[name]))


class Recording(RobustTrainer):
    """A RobustTrainer that remembers its micro-batches, the random state each began with, and every step's masks.

    It brings substitutes for recipes that replace words.
    """

    def __init__(self, *args: Any, recipe: Any = "vanilla", train_dataset: Any = None, **kwargs: Any) -> None:
        recipe = quick(recipe)
        data = Substituted(train_dataset, recipe.columns()) if recipe.columns() else train_dataset
        super().__init__(*args, recipe=recipe, train_dataset=data, **kwargs)
        self.micro_batches: list[tuple[Tensor, dict[str, Tensor]]] = []
        self.masks: list[dict[str, Any]] = []

    def training_step(self, model: nn.Module, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Tensor:
        batch = {key: value.clone() for key, value in inputs.items() if isinstance(value, Tensor)}
        self.micro_batches.append((torch.get_rng_state(), batch))
        return super().training_step(model, inputs, *args, **kwargs)

    def create_optimizer(self, *args: Any, **kwargs: Any) -> torch.optim.Optimizer:
        is_new = self.optimizer is None
        optimizer = super().create_optimizer(*args, **kwargs)
        if is_new:
            optimizer.register_step_post_hook(self._remember)
        return optimizer

    def _remember(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        found = getattr(optimizer, "multipliers", {})
        self.masks.append({n: found[p] for n, p in self.model.named_parameters() if p in found})


def trained(
    recipe: Any,
    directory: Any,
    model: nn.Module | None = None,
    data: Any = None,
    eval_data: Any = None,
    resume: Any = None,
    history_file: Any = None,
    callbacks: Any = None,
    **settings: Any,
) -> Recording:
    """A Recording after train() on tiny data."""
    model = tiny_bert() if model is None else model
    data = TinyData() if data is None else data
    trainer = Recording(
        model=model,
        args=arguments(directory, **settings),
        train_dataset=data,
        eval_dataset=eval_data,
        recipe=recipe,
        history_file=history_file,
        callbacks=callbacks,
    )
    trainer.train(resume_from_checkpoint=resume)
    return trainer
