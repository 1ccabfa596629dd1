"""A name for a model: equal names mean equal outputs."""

from __future__ import annotations

import json

import torch
import xxhash
from transformers import PreTrainedModel, PreTrainedTokenizerBase


def of_model(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> str:
    """A hash of the weights, the names of the outputs, and the vocabulary."""
    digest = xxhash.xxh3_128()
    for name, tensor in model.state_dict().items():
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    digest.update(json.dumps([model.config.id2label, sorted(tokenizer.get_vocab().items())]).encode())
    return digest.hexdigest()
