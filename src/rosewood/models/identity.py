"""Fingerprints of models, checkpoints and resources: equal fingerprints mean equal results."""

from __future__ import annotations

import json
from pathlib import Path

import torch
import xxhash
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rosewood.data.files import file_digest
from rosewood.models.defended import defence_of
from rosewood.models.open import resolve_model


def of_model(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> str:
    """A hash of the weights, the names of the outputs, the vocabulary, and of the defence around it if there is one."""
    digest = xxhash.xxh3_128()
    for name, tensor in model.state_dict().items():
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    facts = [model.config.id2label, sorted(tokenizer.get_vocab().items()), *defence_of(model)]
    digest.update(json.dumps(facts).encode())
    return digest.hexdigest()


def of_resource(thing: object) -> str | None:
    """The fingerprint of a lexicon, language model, tagger or encoder; without one, what kind of thing it is."""
    if thing is None:
        return None
    kind = thing if hasattr(thing, "__qualname__") else type(thing)
    return getattr(thing, "fingerprint", f"{kind.__module__}.{kind.__qualname__}")


def of_checkpoint(name: str) -> str:
    """A hash of the files in a model's folder; the name itself of a model that is not in a folder."""
    folder = Path(resolve_model(name))
    if not folder.is_dir():
        return name
    digest = xxhash.xxh3_64()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(folder)} {file_digest(path)}\n".encode())
    return digest.hexdigest()
