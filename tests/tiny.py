"""Models and data small enough that a test can train on them in a blink."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, TrainingArguments

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
