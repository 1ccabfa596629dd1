"""Sentence vectors of a small model, to tell whether a changed text still says the same."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModel, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from rosewood.models.identity import of_model
from rosewood.models.open import resolve_model


class SentenceEncoder:
    """The mean of a model's last hidden states over the tokens of a text, scaled to length 1."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, max_length: int = 128) -> None:
        self._model = model.eval()
        self._tokenizer = tokenizer
        self._max_length = max_length

    @classmethod
    def load(cls, name: str = "minilm") -> SentenceEncoder:
        """A sentence model by path or name; by default all-MiniLM-L6-v2, which comes with rosewood[demo]."""
        path = resolve_model(name)
        return cls(AutoModel.from_pretrained(path, use_safetensors=True), AutoTokenizer.from_pretrained(path))

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the model: similarities are comparable only where it is the same."""
        return of_model(self._model, self._tokenizer)

    @torch.inference_mode()
    def __call__(self, texts: Sequence[str]) -> NDArray[np.floating[Any]]:
        batch = self._tokenizer(
            list(texts), truncation=True, max_length=self._max_length, padding=True, return_tensors="pt"
        ).to(self._model.device)
        hidden = self._model(**batch).last_hidden_state.float()  # (texts, tokens, hidden)
        mask = batch["attention_mask"][..., None]
        mean = (hidden * mask).sum(1) / mask.sum(1)
        return torch.nn.functional.normalize(mean, dim=1).cpu().numpy()
