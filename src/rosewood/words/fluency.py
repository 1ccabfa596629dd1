"""How fluent texts are: a small model of three words, and the perplexity of a causal language model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from hashlib import sha256
from math import log

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerBase

from rosewood.errors import DataError
from rosewood.models.names import model_fingerprint
from rosewood.models.open import load_language_model
from rosewood.words.text import Words


class Trigram:
    """Interpolated absolute discounting over trigrams, bigrams and add-one unigrams.

    P(c | a, b) = max(n(abc) - D, 0) / n(ab) + D * kinds(ab) / n(ab) * P(c | b), where `kinds` counts the distinct
    words seen after ab, and so on down to (n(c) + 1) / (n + V). It knows the words seen at least `min_count` times.
    """

    def __init__(self, sentences: Iterable[Sequence[str]], min_count: int = 2, discount: float = 0.75) -> None:
        known = [list(sentence) for sentence in sentences]
        seen = Counter(word for sentence in known for word in sentence)
        self._words = {word: count for word, count in seen.items() if count >= min_count}
        if not self._words:
            raise DataError(
                f"a language model needs words that occur at least {min_count} times; "
                f"got {len(known)} sentences of {len(seen)} words: give it more text"
            )
        self._total = sum(self._words.values()) + len(self._words)
        self._discount = discount
        # Words the model does not know break the sequence: it never counts across one.
        self._counts: Counter[tuple[str, ...]] = Counter()
        for sentence in known:
            for size in (2, 3):
                grams = zip(*(sentence[start:] for start in range(size)), strict=False)
                self._counts.update(gram for gram in grams if all(word in self._words for word in gram))
        self._follow: Counter[tuple[str, ...]] = Counter()
        self._kinds: Counter[tuple[str, ...]] = Counter()
        for gram, count in self._counts.items():
            self._follow[gram[:-1]] += count
            self._kinds[gram[:-1]] += 1

    @classmethod
    def fit(cls, texts: Iterable[str], min_count: int = 2) -> Trigram:
        """Fit on texts, in lower case."""
        return cls((Words.split(text.lower()).words for text in texts), min_count)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all counts: figures are comparable only where it is the same."""
        counted = (sorted(self._words.items()), sorted(self._counts.items()), self._discount)
        return sha256(repr(counted).encode()).hexdigest()[:16]

    def __contains__(self, word: str) -> bool:
        return word in self._words

    def logp(self, words: Sequence[str]) -> float:
        """The log-probability of known words in a row, the first ones given fewer before them."""
        return sum(log(self.probability(words[max(0, i - 2) : i + 1])) for i in range(len(words)))

    def probability(self, gram: Sequence[str]) -> float:
        """The chance of the last word of up to three, given the others."""
        gram = tuple(gram)
        before = gram[:-1]
        if not before:
            return (self._words[gram[0]] + 1) / self._total
        shorter = self.probability(gram[1:])
        follow = self._follow.get(before, 0)
        if not follow:
            return shorter
        own = max(self._counts.get(gram, 0) - self._discount, 0.0)
        return (own + self._discount * self._kinds[before] * shorter) / follow


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
        return cls(*load_language_model(AutoModelForCausalLM, name, "causal", "HuggingFaceTB/SmolLM2-135M"))

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the model: fluency is comparable only where it is the same."""
        return model_fingerprint(self._model, self._tokenizer)

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
