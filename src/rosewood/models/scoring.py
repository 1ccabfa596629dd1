"""Class scores of texts, and of their words: tokenized together, sorted by length, in batches that pad little."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import accumulate
from typing import Literal, NamedTuple, Self, cast

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.tokenization_utils_base import LARGE_INTEGER

from rosewood.errors import RunError

Row = tuple[str, ...]
"""The texts of one example: one, or two of a pair."""
DEFAULT_LENGTH = 128
_CHUNK = 2048  # texts that are tokenized at a time


Precision = Literal["float32", "bfloat16"]


class Scored(NamedTuple):
    """One batch: which of the given rows it holds, and the logits of each: `(classes,)`."""

    rows: list[int]
    logits: Sequence[NDArray[np.float32]] | NDArray[np.float32]


class Scorer:
    """A model and its tokenizer as a function from texts to logits."""

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        max_length: int = 128,
        batch_size: int = 64,
        precision: Precision = "float32",
    ) -> None:
        if max_length > longest_text(model, tokenizer):
            raise RunError(f"max_length {max_length} is more than the model's {longest_text(model, tokenizer)} tokens.")
        if batch_size < 1:
            raise RunError(f"batch_size must be at least 1, got {batch_size}.")
        if tokenizer.pad_token_id is None or model.config.pad_token_id is None:
            raise RunError(
                "there is no padding token, so texts of different lengths cannot share a batch: set "
                "tokenizer.pad_token = tokenizer.eos_token and model.config.pad_token_id = tokenizer.pad_token_id."
            )
        self.model = model
        self.tokenizer = tokenizer
        self.max_length = max_length
        self.batch_size = batch_size
        self.precision = precision
        self.classes = cast(int, model.config.num_labels)

    def in_batches_of(self, size: int) -> Self:
        """The same with another batch size."""
        return type(self)(self.model, self.tokenizer, self.max_length, size, self.precision)

    def computing(self) -> AbstractContextManager[object]:
        """Inside, the model computes in the scorer's precision."""
        if self.precision == "float32":
            return nullcontext()
        return torch.autocast(self.model.device.type, torch.bfloat16)

    def batches(self, texts: Sequence[Row]) -> Iterator[Scored]:
        """Score the texts batch by batch, in the mode the model is in: see `modes.evaluating`."""
        if not texts:
            return
        encoded = self._encode(texts)
        # Longest first: running out of memory shows at once, and an estimate of the time left is not too short.
        order = sorted(range(len(texts)), key=lambda row: -len(encoded["input_ids"][row]))
        for start in range(0, len(order), self.batch_size):
            rows = order[start : start + self.batch_size]
            batch = {key: [values[row].tolist() for row in rows] for key, values in encoded.items()}
            yield Scored(rows, self._forward(batch))

    def visible(self, texts: Row, field: int) -> int:
        """How many characters of one text reach the model before truncation cuts the rest."""
        if not self.tokenizer.is_fast:
            return len(texts[field])
        encoded = self.tokenizer(
            *([text] for text in texts), truncation=True, max_length=self.max_length, return_offsets_mapping=True
        )
        if len(encoded["input_ids"][0]) < self.max_length:
            return len(texts[field])
        own = [i for i, sequence in enumerate(encoded.sequence_ids(0)) if sequence == field]
        return max((encoded["offset_mapping"][0][i][1] for i in own), default=0)

    def _encode(self, texts: Sequence[Row]) -> dict[str, list[NDArray[np.int32]]]:
        """Token ids as arrays: as lists, those of 100,000 texts take a gigabyte."""
        encoded: dict[str, list[NDArray[np.int32]]] = defaultdict(list)
        for start in range(0, len(texts), _CHUNK):
            columns = [list(column) for column in zip(*texts[start : start + _CHUNK], strict=True)]
            found = self.tokenizer(*columns, truncation=True, max_length=self.max_length)
            for key, values in found.items():
                encoded[key] += [np.array(ids, dtype=np.int32) for ids in values]
        return encoded

    @torch.inference_mode()
    def _forward(self, batch: dict[str, list[list[int]]]) -> NDArray[np.float32]:
        padded = self.tokenizer.pad(batch, return_tensors="pt").to(self.model.device)
        with self.computing():
            logits: NDArray[np.float32] = self.model(**padded).logits.float().cpu().numpy()
        if not np.isfinite(logits).all():
            raise RunError("the model gives scores that are not finite numbers; its training has likely diverged.")
        return logits


def check_loaded(model: object, tokenizer: object) -> None:
    """Refuse a name, or nothing, in place of a model and its tokenizer.

    Raises:
        RunError: one of the two is not loaded.
    """
    for what, given, is_loaded, loader in (
        ("model", model, hasattr(model, "config"), "AutoModelForSequenceClassification"),
        ("tokenizer", tokenizer, hasattr(tokenizer, "model_max_length"), "AutoTokenizer"),
    ):
        if not is_loaded:
            raise RunError(
                f"{what}: expected a {what}, got {type(given).__name__}: load it first, with {loader}.from_pretrained"
            )


def reads_alike(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[Row], others: Sequence[Row], max_length: int
) -> bool:
    """Whether each text and its counterpart have the same tokens, as "good" and "GOOD" if the tokenizer is uncased."""
    different = [pair for pair in zip(texts, others, strict=True) if pair[0] != pair[1]]
    for start in range(0, len(different), _CHUNK):
        both = zip(*different[start : start + _CHUNK], strict=True)
        ids = [tokenizer(*map(list, zip(*side, strict=True)), truncation=True, max_length=max_length) for side in both]
        if ids[0]["input_ids"] != ids[1]["input_ids"]:
            return False
    return True


def longest_text(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> int:
    """The most tokens that a model can read: all its positions, whatever length it was trained with."""
    return max(tokenizer.model_max_length, _positions(model))


def text_length(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> int:
    """How many tokens of a text a checkpoint is meant to read: as many as its tokenizer says, or else 128."""
    says = tokenizer.model_max_length
    return min(DEFAULT_LENGTH if says >= LARGE_INTEGER else says, _positions(model))


def _positions(model: PreTrainedModel) -> int:
    positions = getattr(model.config, "max_position_embeddings", None) or 0
    if positions <= 0:
        return int(LARGE_INTEGER)  # they are relative
    tables = [module for name, module in model.named_modules() if name.endswith("position_embeddings")]
    # RoBERTa and its like count positions from the padding token on.
    reserved = [each.padding_idx + 1 for each in tables if isinstance(getattr(each, "padding_idx", None), int)]
    return positions - max(reserved, default=0)


def label_columns(config: PretrainedConfig, labels: Sequence[str]) -> list[int]:
    """For each label of the task, the output of the model that means it.

    Outputs with no names of their own (LABEL_0, LABEL_1, …) are taken in the order of the task.
    Upper and lower case do not matter.
    """
    names = output_names(config)
    refusal = getattr(config, "refusal", None)
    if refusal is not None and len(names) == len(labels) + 1:  # a guard's "suspicious" is not a label of a task
        del names[refusal]
    if len(names) != len(labels):
        raise RunError(
            f"the model has {config.num_labels} outputs, the task {len(labels)} labels "
            f"({', '.join(labels)}). Evaluate a model that was fine-tuned on this task."
        )
    if unnamed(config):
        return list(range(len(labels)))
    columns = matching_columns(names, labels)
    if columns is None:
        raise RunError(
            f"the model's labels are {', '.join(names)}, the task's are {', '.join(labels)}. "
            "If they mean the same, give the outputs the task's names, in their order: --labels of rosewood evaluate, "
            "or id2label in the model's config.json."
        )
    return columns


def matching_columns(names: Sequence[str], labels: Sequence[str]) -> list[int] | None:
    """For each label the place of its name; None if they are not the same names, upper and lower case alike."""
    if sorted(names) == sorted(labels):
        return [list(names).index(label) for label in labels]
    folded, wanted = ([name.casefold() for name in each] for each in (names, labels))
    alike = sorted(folded) == sorted(wanted) and len(set(folded)) == len(folded)
    return [folded.index(label) for label in wanted] if alike else None


def output_names(config: PretrainedConfig) -> list[str]:
    """The names of a model's outputs in their order."""
    names = cast(dict[int, str], config.id2label)  # the declared type is wider than what a model has
    return [names.get(number, f"LABEL_{number}") for number in range(len(names))]


def name_outputs(model: PreTrainedModel, names: Sequence[str]) -> None:
    """Give the outputs of a model these names, which --labels says."""
    if len(names) != model.config.num_labels:
        raise RunError(
            f"--labels: expected {model.config.num_labels} names, one for each output of the model, got {len(names)}: "
            f"{', '.join(names)}"
        )
    model.config.id2label = dict(enumerate(names))
    model.config.label2id = {name: number for number, name in enumerate(names)}


def unnamed(config: PretrainedConfig) -> bool:
    """Whether the outputs have only the names that transformers gives them: LABEL_0, LABEL_1, …"""
    return all(name == f"LABEL_{number}" for number, name in enumerate(output_names(config)))


def is_for_tokens(model: PreTrainedModel) -> bool:
    """Whether a model gives a label to each token."""
    return type(model).__name__.endswith("ForTokenClassification")


class TokenScorer(Scorer):
    """A token classifier and its tokenizer as a function from words to logits.

    A row has a text for each word, not for each field; they are joined by spaces, and an empty one is left out. The
    logits of a text are `(words, labels)`: those of the first token of each word, NaN for words without tokens.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        max_length: int = 128,
        batch_size: int = 64,
        precision: Precision = "float32",
    ) -> None:
        super().__init__(model, tokenizer, max_length, batch_size, precision)
        if not tokenizer.is_fast:
            raise RunError(
                f"{type(tokenizer).__name__} cannot say which tokens a word has: use a fast tokenizer (use_fast=True)"
            )

    def batches(self, texts: Sequence[Row]) -> Iterator[Scored]:
        joined = [(" ".join(filter(None, words)),) for words in texts]
        for batch in super().batches(joined):
            found = []
            for row, tokens in zip(batch.rows, batch.logits, strict=True):
                firsts, length = self.first_tokens(texts[row], joined[row][0])
                if self.tokenizer.padding_side == "left":
                    tokens = tokens[len(tokens) - length :]
                logits = np.full((len(firsts), tokens.shape[-1]), np.nan, dtype=np.float32)
                seen = [at for at, place in enumerate(firsts) if place is not None]
                logits[seen] = tokens[[firsts[at] for at in seen]]
                found.append(logits)
            yield Scored(batch.rows, found)

    def first_tokens(self, words: Row, text: str) -> tuple[list[int | None], int]:
        """The place of the first token of each word, None for a word that the model does not see; how many tokens."""
        encoded = self.tokenizer(text, truncation=True, max_length=self.max_length, return_offsets_mapping=True)
        starts = spans_of(words)
        firsts: list[int | None] = [None] * len(words)
        at = 0
        for place, (start, end) in enumerate(encoded["offset_mapping"]):
            while start < end and text[start].isspace():
                start += 1
            if start >= end:  # a special token
                continue
            while at < len(words) and (not words[at] or starts[at][1] <= start):
                at += 1
            if at < len(words) and firsts[at] is None and start < starts[at][1]:
                firsts[at] = place
        return firsts, len(encoded["input_ids"])


def spans_of(words: Sequence[str]) -> list[tuple[int, int]]:
    """The characters of each word in the text that they make, joined by spaces without the empty ones."""
    lengths = [len(word) + 1 if word else 0 for word in words]
    ends = list(accumulate(lengths))
    return [(end - length, end - 1 if length else end) for end, length in zip(ends, lengths, strict=True)]
