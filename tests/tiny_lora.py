"""A tiny BERT with a LoRA adapter, and what of it may move."""

from __future__ import annotations

from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import nn

from tiny import tiny_bert


def tiny_lora(seed: int = 0, dtype: torch.dtype = torch.float64, **settings: Any) -> PeftModel:
    """Rank 2 on every linear layer, with dropout; the head is trained as a whole."""
    model = tiny_bert(dtype=dtype, seed=seed)
    defaults: dict[str, Any] = {"r": 2, "lora_alpha": 6, "lora_dropout": 0.1, "target_modules": "all-linear"}
    return get_peft_model(model, LoraConfig(task_type="SEQ_CLS", **(defaults | settings)))


def moved(model: nn.Module, size: float = 0.1) -> nn.Module:
    """The model with every trainable parameter somewhere else, so that B is not 0."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(size * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))
    return model


def trainable_names(model: nn.Module) -> set[str]:
    return {name for name, parameter in model.named_parameters() if parameter.requires_grad}


def block_factors(model: nn.Module) -> set[str]:
    """The factors inside the layers, by name."""
    return {name for name in trainable_names(model) if ".lora_" in name and ".layer." in name}
