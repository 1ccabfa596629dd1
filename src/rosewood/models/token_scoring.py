"""Scores of words: what a model with a label for each token says of the words of a text, by their first tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

import numpy as np
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rosewood.errors import RunError
from rosewood.models.scoring import Precision, Row, Scored, Scorer


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
