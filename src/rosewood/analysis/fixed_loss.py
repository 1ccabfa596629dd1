"""The loss of a model on examples that stay the same, tokenised once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256
from typing import NamedTuple

import torch
from datasets import Dataset
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rosewood.data.loading import fingerprint
from rosewood.data.model_identity import of_model
from rosewood.errors import RunError
from rosewood.scoring import label_columns, longest_text


class Point(NamedTuple):
    """How a model does at one place in the space of weights."""

    loss: float
    accuracy: float


class FixedLoss:
    """Mean cross-entropy of a classifier on a data set, with batches that are ready and sorted by length."""

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        data: Dataset,
        max_length: int = 128,
        batch_size: int = 64,
    ) -> None:
        """Takes data as `load_split` gives them: the texts, then the integer `label`."""
        if max_length > longest_text(model, tokenizer):
            raise RunError(f"max_length {max_length} is more than the model's {longest_text(model, tokenizer)} tokens.")
        self.model = model
        self.examples = len(data)
        self.data = fingerprint(data)
        settings = [of_model(model, tokenizer), self.data, max_length, batch_size]
        self.fingerprint = sha256(json.dumps(settings).encode()).hexdigest()[:16]
        self._batches = list(_batches(model, tokenizer, data, max_length, batch_size))

    @torch.inference_mode()
    def measure(self) -> Point:
        """Loss and accuracy with the weights that the model has now."""
        loss = torch.zeros((), dtype=torch.float64, device=self.model.device)
        right = torch.zeros((), dtype=torch.long, device=self.model.device)
        for inputs, labels in self._batches:
            logits = self.model(**inputs).logits
            loss += functional.cross_entropy(logits.double(), labels, reduction="sum")
            right += (logits.argmax(dim=-1) == labels).sum()
        return Point(float(loss) / self.examples, int(right) / self.examples)

    def shares(self) -> Iterator[Tensor]:
        """What each batch adds to the loss, one by one, to be differentiated."""
        for inputs, labels in self._batches:
            logits = self.model(**inputs).logits
            yield functional.cross_entropy(logits, labels, reduction="sum") / self.examples


def _batches(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, data: Dataset, max_length: int, batch_size: int
) -> Iterator[tuple[dict[str, Tensor], Tensor]]:
    fields = data.column_names[: data.column_names.index("label")]
    outputs = label_columns(model.config, data.features["label"].names)
    encoded = tokenizer(*(data[field][:] for field in fields), truncation=True, max_length=max_length)
    labels = [outputs[label] for label in data["label"][:]]
    # Longest first, as evaluation does it: the same batches give the same logits to the last bit.
    order = sorted(range(len(labels)), key=lambda row: -len(encoded["input_ids"][row]))
    for start in range(0, len(order), batch_size):
        rows = order[start : start + batch_size]
        batch = {key: [values[row] for row in rows] for key, values in encoded.items()}
        padded = tokenizer.pad(batch, return_tensors="pt").to(model.device)
        yield dict(padded), torch.tensor([labels[row] for row in rows], device=model.device)
