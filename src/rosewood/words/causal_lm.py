"""How fluent a causal language model finds texts: their perplexity."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from rosewood.errors import RunError
from rosewood.models.identity import of_model
from rosewood.models.open import check_vocabulary, resolve_model, why_not_loaded

BATCH = 16
IGNORED = -100


class CausalLM:
    """A causal language model, such as SmolLM2 or GPT-2, with its tokenizer."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, max_length: int = 256) -> None:
        self._model = model.eval()
        self._tokenizer = tokenizer
        self._max_length = max_length

    @classmethod
    def load(cls, name: str) -> CausalLM:
        """A model by path or Hub name; weights must be in safetensors, and code that comes with a model is not run.

        Raises:
            RunError: it cannot be loaded, or has no trained head that predicts words.
        """
        path = resolve_model(name)
        try:
            found: Any = AutoModelForCausalLM.from_pretrained(
                path, use_safetensors=True, trust_remote_code=False, output_loading_info=True
            )
            model, loaded = found
            tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=False)
        except Exception as error:  # what a damaged checkpoint makes transformers say has no common type
            raise RunError(
                f"cannot load a causal language model from {name}: {why_not_loaded(name, error)}\n"
                "Expected a folder (or the name of a model) with config.json, model.safetensors "
                "and the files of its tokenizer, such as HuggingFaceTB/SmolLM2-135M."
            ) from error
        if loaded["missing_keys"]:
            raise RunError(
                f"{name} is not a causal language model: it has no weights for "
                f"{', '.join(sorted(loaded['missing_keys']))}."
            )
        check_vocabulary(tokenizer, name, model)
        return cls(model, tokenizer)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the model: fluency is comparable only where it is the same."""
        return of_model(self._model, self._tokenizer)

    @torch.inference_mode()
    def surprise(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """The log of the perplexity of each text: what a token costs on average, in nats, `(texts,)`."""
        rows = [self._tokens(text) for text in texts]
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        found = np.zeros(len(rows))
        for start in range(0, len(order), BATCH):
            part = order[start : start + BATCH]
            longest = max(len(rows[i]) for i in part)
            # On the right of a text nothing changes what comes before, so any token fills up.
            ids = torch.tensor([rows[i] + [0] * (longest - len(rows[i])) for i in part], device=self._model.device)
            seen = torch.tensor([[1] * len(rows[i]) + [0] * (longest - len(rows[i])) for i in part], device=ids.device)
            logits = self._model(input_ids=ids, attention_mask=seen).logits[:, :-1].float()
            wanted = ids[:, 1:].masked_fill(seen[:, 1:] == 0, IGNORED)
            costs = cross_entropy(logits.transpose(1, 2), wanted, ignore_index=IGNORED, reduction="none").sum(1)
            found[part] = (costs / (wanted != IGNORED).sum(1).clamp(min=1)).cpu().double().numpy()
        return found

    def _tokens(self, text: str) -> list[int]:
        """Of a text, after the token that begins one: without it the first word would cost nothing."""
        tokenizer = self._tokenizer
        first = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.eos_token_id
        ids = tokenizer(text, add_special_tokens=False, truncation=True, max_length=self._max_length)["input_ids"]
        return [*([] if first is None else [first]), *ids]
