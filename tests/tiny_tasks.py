"""Token classification, multi-label classification and causal language modelling, with slow losses and divergences.

The losses and divergences go through one prediction after the other; nothing in them comes from the library.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import BertForTokenClassification, GPT2Config, GPT2LMHeadModel

from slow_methods import PaddedData
from tiny import VOCABULARY, tiny_bert

Batch = dict[str, Tensor]


class TokenData(PaddedData):
    """A label for every token but the first and the padding; some sentences have none at all."""

    def __getitem__(self, i: int) -> Batch:
        example = super().__getitem__(i)
        labels = example["input_ids"] % 3
        labels[0] = -100
        labels[example["attention_mask"] == 0] = -100
        return example | {"labels": torch.full_like(labels, -100) if i % 5 == 0 else labels}


class MultiLabelData(PaddedData):
    """Four yes-or-no labels."""

    def __getitem__(self, i: int) -> Batch:
        example = super().__getitem__(i)
        return example | {"labels": ((example["input_ids"][:3].sum() >> torch.arange(4)) % 2).double()}


class TextData(PaddedData):
    """The text is its own label, after a prompt of up to three tokens; short texts are nothing but prompt."""

    def __getitem__(self, i: int) -> Batch:
        example = super().__getitem__(i)
        labels = example["input_ids"].masked_fill(example["attention_mask"] == 0, -100)
        labels[: i % 4 + 1] = -100
        return example | {"labels": labels}


def token_classifier() -> Any:
    torch.manual_seed(0)
    config = tiny_bert(num_labels=3).config
    return BertForTokenClassification(config).double()


def multi_label_classifier() -> Any:
    return tiny_bert(num_labels=4, problem_type="multi_label_classification")


def language_model() -> Any:
    torch.manual_seed(0)
    sizes = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32}
    config = GPT2Config(vocab_size=VOCABULARY, bos_token_id=0, eos_token_id=0, attn_implementation="eager", **sizes)
    return GPT2LMHeadModel(config).double()


def token_predictions(batch: Batch) -> Iterator[tuple[int, int, int]]:
    """(row, position, label) of every prediction."""
    for row, labels in enumerate(batch["labels"].tolist()):
        for position, label in enumerate(labels):
            if label != -100:
                yield row, position, label


def text_predictions(batch: Batch) -> Iterator[tuple[int, int, int]]:
    """The same, where the prediction stands a position before its label."""
    for row, position, label in token_predictions(batch):
        if position > 0:
            yield row, position - 1, label


def kl(log_p: Tensor, log_q: Tensor) -> Tensor:
    return sum(p.exp() * (p - q) for p, q in zip(log_p, log_q, strict=True))  # type: ignore[return-value]


def token_losses(logits: Tensor, batch: Batch) -> list[Tensor]:
    return [-logits[row, at].log_softmax(-1)[label] for row, at, label in token_predictions(batch)]


def text_losses(logits: Tensor, batch: Batch) -> list[Tensor]:
    # transformers computes this loss in single precision, whatever the model.
    return [-logits[row, at].float().log_softmax(-1)[label] for row, at, label in text_predictions(batch)]


def multi_label_losses(logits: Tensor, batch: Batch) -> list[Tensor]:
    """A mean over the labels, as BCEWithLogitsLoss has it."""
    p = logits.sigmoid()
    return list(-(batch["labels"] * p.log() + (1 - batch["labels"]) * (1 - p).log()).mean(-1))


def symmetric(predictions: Callable[[Batch], Iterator[tuple[int, int, int]]]) -> Divergences:
    def divergences(first: Tensor, second: Tensor, batch: Batch) -> list[Tensor]:
        pairs = [(first[row, at].log_softmax(-1), second[row, at].log_softmax(-1)) for row, at, _ in predictions(batch)]
        return [kl(p, q) + kl(q, p) for p, q in pairs]

    return divergences


def multi_label_divergences(first: Tensor, second: Tensor, batch: Batch) -> list[Tensor]:
    """A sum over the labels."""
    found = []
    for one, other in zip(first.sigmoid(), second.sigmoid(), strict=True):
        pairs = [
            (torch.stack([p, 1 - p]).log(), torch.stack([q, 1 - q]).log()) for p, q in zip(one, other, strict=True)
        ]
        found.append(torch.stack([kl(p, q) + kl(q, p) for p, q in pairs]).sum())
    return found


Divergences = Callable[[Tensor, Tensor, Batch], list[Tensor]]


class Task(NamedTuple):
    """A task, and the loss and the symmetric KL of each of its predictions."""

    model: Callable[[], Any]
    data: Callable[..., Any]
    losses: Callable[[Tensor, Batch], list[Tensor]]
    divergences: Divergences
    tolerance: float


TASKS = {
    "tokens": Task(token_classifier, TokenData, token_losses, symmetric(token_predictions), 1e-9),
    "multi-label": Task(multi_label_classifier, MultiLabelData, multi_label_losses, multi_label_divergences, 1e-9),
    "text": Task(language_model, TextData, text_losses, symmetric(text_predictions), 1e-6),
}
