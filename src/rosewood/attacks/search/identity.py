"""Names for what an attack was given: equal names mean equal results."""

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


def of_resource(thing: object) -> str | None:
    """The fingerprint of a lexicon, language model, tagger or encoder; without one, what kind of thing it is."""
    if thing is None:
        return None
    kind = thing if hasattr(thing, "__qualname__") else type(thing)
    return getattr(thing, "fingerprint", f"{kind.__module__}.{kind.__qualname__}")
