"""Language models of words: masked ones that suggest words for a place, causal and trigram ones that judge fluency."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from functools import cached_property
from hashlib import sha256
from math import log
from typing import Any, NamedTuple

import numpy as np
import regex
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from rosewood.errors import DataError, RunError
from rosewood.models.names import model_fingerprint, resolve_model
from rosewood.models.open import load_language_model
from rosewood.words.text import WORD, Words

Choice = tuple[int, float]
"""A token, and its log-probability."""
PIECE = r"[^\W_]+"
# Tokens of a batch: each has one number for every word of the vocabulary.
BATCH_TOKENS = 1024
LONGEST = 512


class Vocabulary(NamedTuple):
    """What each token is: a whole word, a piece that goes on with a word, or neither."""

    texts: list[str]
    words: Tensor  # whether it can be a word by itself, `(tokens,)`
    pieces: Tensor  # whether it can go on with a word


class MaskedLM:
    """A masked language model, such as BERT, with its tokenizer."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.most: int | None = None
        """Words for a place, at most, whatever is asked for."""

    @classmethod
    def load(cls, name: str) -> MaskedLM:
        """A model by path or Hub name; weights must be in safetensors, and code that comes with a model is not run.

        Raises:
            RunError: it cannot be loaded, or has no trained head that predicts words.
        """
        model, tokenizer = load_language_model(AutoModelForMaskedLM, name, "masked", "bert-base-uncased")
        if tokenizer.mask_token is None or not tokenizer.is_fast:
            raise RunError(f"the tokenizer of {name} has no mask, or no fast form: take another model")
        return cls(model, tokenizer)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the model: attacks are comparable only where it is the same."""
        return model_fingerprint(self.model, self.tokenizer)

    def limited(self, most: int) -> MaskedLM:
        """The same model, which proposes at most so many words for a place."""
        one = copy(self)
        one.most = most
        return one

    def fill(self, gaps: Sequence[tuple[str, str]], count: int) -> list[list[str]]:
        """The words that fit best between two parts of a text, best first, for each of the gaps."""
        bodies, places = [], []
        for before, after in gaps:
            left = self._tokens(f" {before.strip()}") if before.strip() else []
            left, right = _around(left, self._tokens(after), self._room - 1)
            bodies.append([*left, self.tokenizer.mask_token_id, *right])
            places.append([len(left)])
        known = self._vocabulary
        return [
            [known.texts[token] for token, _ in _best(scores[0], known.words, count)][: self.most]
            for scores in self._scores(bodies, places)
        ]

    def read(self, text: Words, count: int) -> Reading:
        """Read a text, to ask what could replace its words: so many likely words or pieces for each token."""
        # A space first: byte-level tokenizers have other tokens for a word at the very beginning.
        encoded = self.tokenizer(
            " " + text.join(text.words), add_special_tokens=False, return_offsets_mapping=True, verbose=False
        )
        spans = [(start + 1, end + 1) for start, end in text.spans()]
        return Reading(self, encoded["input_ids"], _tokens_of(spans, encoded["offset_mapping"]), count)

    def _tokens(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])

    @torch.inference_mode()
    def _scores(self, bodies: Sequence[list[int]], places: Sequence[Sequence[int]]) -> Iterator[Tensor]:
        """Log-probabilities at some places of each sequence of tokens, `(places, vocabulary)`."""
        before, after = self._frame
        longest = len(before) + max(map(len, bodies), default=0) + len(after)
        size = max(1, BATCH_TOKENS // longest)
        for start in range(0, len(bodies), size):
            rows = [[*before, *body, *after] for body in bodies[start : start + size]]
            batch = self.tokenizer.pad({"input_ids": rows}, return_tensors="pt").to(self.model.device)
            logits = self.model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
            for row, own in zip(logits, places[start : start + size], strict=True):
                yield row[[len(before) + place for place in own]].float().log_softmax(-1).cpu()

    @cached_property
    def _frame(self) -> tuple[list[int], list[int]]:
        """The special tokens before and after a text."""
        encoded = self.tokenizer("a", return_special_tokens_mask=True)
        ids, special = encoded["input_ids"], encoded["special_tokens_mask"]
        first = special.index(0)
        return ids[:first], ids[len(special) - special[::-1].index(0) :]

    @property
    def _room(self) -> int:
        """Tokens of a text that the model can read at once."""
        longest = min(LONGEST, self.tokenizer.model_max_length)
        return longest - sum(map(len, self._frame))

    @cached_property
    def _vocabulary(self) -> Vocabulary:
        tokenizer, size = self.tokenizer, self.model.get_input_embeddings().num_embeddings
        anchor = self._tokens(" a")[-1]
        start = tokenizer.decode([anchor])
        special = set(tokenizer.all_special_ids)
        known = [i for i in range(min(size, len(tokenizer))) if i not in special]
        pairs = tokenizer.batch_decode([[anchor, i] for i in known], clean_up_tokenization_spaces=False)
        texts = [""] * size
        words, pieces = torch.zeros(size, dtype=torch.bool), torch.zeros(size, dtype=torch.bool)
        for i, pair in zip(known, pairs, strict=True):
            rest = str(pair).removeprefix(str(start))
            texts[i] = rest.strip()
            words[i] = rest[:1].isspace() and bool(regex.fullmatch(WORD, texts[i]))
            pieces[i] = bool(regex.fullmatch(PIECE, rest))
        return Vocabulary(texts, words, pieces)


class Reading:
    """A text as the model reads it, without any mask: what it would write in the place of each word."""

    def __init__(self, model: MaskedLM, tokens: list[int], of_words: list[list[int]], count: int) -> None:
        self._model = model
        self._tokens = tokens
        self._of_words = of_words
        self._likely: dict[int, list[Choice]] = {}  # place of a token -> what could be there, best first
        room, known = model._room, model._vocabulary
        first = {own[0] for own in of_words if own}
        for start in range(0, len(tokens), room):  # a text that is too long is read in parts
            wanted = [place for own in of_words for place in own if start <= place < start + room]
            if not wanted:
                continue
            (scores,) = model._scores([tokens[start : start + room]], [[place - start for place in wanted]])
            for place, own in zip(wanted, scores, strict=True):
                self._likely[place] = _best(own, known.words if place in first else known.pieces, count)

    def substitutes(self, at: int, combinations: int) -> list[str]:
        """The words that the model finds likeliest in the place of a word, best first.

        For a word of several tokens the likeliest combinations of as many pieces are put into the text, and ordered by
        their perplexity there.
        """
        places, texts = self._of_words[at], self._model._vocabulary.texts
        if len(places) < 2:
            return [texts[token] for place in places for token, _ in self._likely[place]][: self._model.most]
        likeliest = _combined([self._likely[place] for place in places], combinations)
        perplexity = self._perplexity(places, likeliest)
        order = sorted(range(len(likeliest)), key=lambda i: perplexity[i])
        return ["".join(texts[token] for token in likeliest[i]) for i in order][: self._model.most]

    def _perplexity(self, places: list[int], combinations: Sequence[tuple[int, ...]]) -> list[float]:
        """The perplexity of the tokens of each combination in the text, as a mean log."""
        first, length = places[0], len(places)
        left, right = self._tokens[:first], self._tokens[first + length :]
        left, right = _around(left, right, self._model._room - length)
        bodies = [[*left, *each, *right] for each in combinations]
        own = range(len(left), len(left) + length)
        scores = self._model._scores(bodies, [own] * len(bodies))
        return [
            -float(found.gather(1, torch.tensor(each)[:, None]).mean())
            for found, each in zip(scores, combinations, strict=True)
        ]


def _tokens_of(words: Sequence[tuple[int, int]], tokens: Sequence[tuple[int, int]]) -> list[list[int]]:
    """The places of the tokens of each word; none if one of them has letters of something else."""
    found = []
    for start, end in words:
        own = [i for i, (first, last) in enumerate(tokens) if first < end and last > start]
        whole = own and tokens[own[0]][0] >= start - 1 and tokens[own[-1]][1] <= end
        found.append(own if whole else [])
    return found


def _around(left: list[int], right: list[int], room: int) -> tuple[list[int], list[int]]:
    """The parts that are nearest to the middle, as much of each as there is room for."""
    after = min(len(right), max(room // 2, room - len(left)))
    before = min(len(left), room - after)
    return left[len(left) - before :], right[:after]


def _best(scores: Tensor, allowed: Tensor, count: int) -> list[Choice]:
    """The tokens with the highest scores, best first."""
    found = scores.masked_fill(~allowed, -torch.inf).topk(min(count, int(allowed.sum())))
    return list(zip(found.indices.tolist(), found.values.tolist(), strict=True))


def _combined(likely: Sequence[list[Choice]], count: int) -> list[tuple[int, ...]]:
    """The combinations of one token of each list with the highest sum of scores, best first."""
    found: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
    for own in likely:
        longer = [((*made, token), total + score) for made, total in found for token, score in own]
        # The best combinations are made of the best of their beginnings.
        found = sorted(longer, key=lambda each: -each[1])[:count]
    return [made for made, _ in found]


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
        return model_fingerprint(self._model, self._tokenizer)

    @torch.inference_mode()
    def __call__(self, texts: Sequence[str]) -> NDArray[np.floating[Any]]:
        batch = self._tokenizer(
            list(texts), truncation=True, max_length=self._max_length, padding=True, return_tensors="pt"
        ).to(self._model.device)
        hidden = self._model(**batch).last_hidden_state.float()  # (texts, tokens, hidden)
        mask = batch["attention_mask"][..., None]
        mean = (hidden * mask).sum(1) / mask.sum(1)
        return torch.nn.functional.normalize(mean, dim=1).cpu().numpy()


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
        """The tokens of a text, after the token that begins one: without it the first word would cost nothing."""
        tokenizer = self._tokenizer
        first = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.eos_token_id
        ids = tokenizer(text, add_special_tokens=False, truncation=True, max_length=self._max_length)["input_ids"]
        return [*([] if first is None else [first]), *ids]
