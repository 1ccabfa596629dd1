"""Substitutes of the words of a text, as token ids in the places of the words' own tokens.

A word may have several tokens, and so may each of its substitutes. The text keeps its length: a substitute is stretched
over the places of the word, so that place j of k holds a mixture of the tokens that make up the j-th of k equal parts
of the substitute. With as many tokens as the word it is used as it is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from datasets import Dataset
from transformers import PreTrainedTokenizerBase

from rosewood.data.examples import quiet
from rosewood.errors import DataError, closest
from rosewood.words.text import WORD, Words

SUBSTITUTES = "substitutes"
"""The column that an aligned data set has, and the entry of a batch."""
KEYS = ("place", "first", "layer", "slot", "token", "share")

Surface = Callable[[Sequence[str]], Sequence[Sequence[str]]]
"""From the words of a text to the substitutes of each."""
Offsets = Sequence[tuple[int, int] | None]
"""The characters of each token of a text; None for tokens of other texts."""
Pieces = Literal["any", "equal", "single"]


class Entry(NamedTuple):
    """One token of one substitute, in one place of its word.

    `first` is the place of the word's first token, `slot` the number of the substitute (the word itself has slot 0),
    and `share` how much of the place the token fills. `layer` tells apart the entries of one place.
    """

    place: int
    first: int
    layer: int
    slot: int
    token: int
    share: float


def with_substitutes(
    dataset: Dataset,
    tokenizer: PreTrainedTokenizerBase,
    surface: Surface,
    fields: Sequence[str],
    field: str | None = None,
    *,
    max_length: int = 128,
    slots: int = 10,
    pieces: Pieces = "any",
    pattern: str = WORD,
) -> Dataset:
    """Add to tokenized texts what may replace their words, as adversarial training on words needs it.

    Args:
        dataset: tokenized texts that still have the texts, in `fields`.
        tokenizer: the fast tokenizer that made the token ids.
        surface: gives the substitutes of the words of a text, such as `Substituting(lexicon).surface`.
        fields: the columns with the texts, in the order in which they were tokenized.
        field: the one whose words are replaced; by default the last (the hypothesis of a pair).
        max_length: texts were cut after that many tokens.
        slots: choices of a word at most, itself included.
        pieces: which substitutes count: `any`, those with as many tokens as the word (`equal`), or only words of one
            token with substitutes of one token (`single`, as in the RIFT paper).
        pattern: what counts as a word, as a regular expression.

    Returns:
        The data set with one more column.

    Raises:
        DataError: the data are not tokenized, have lost their texts, or were tokenized in another way.

    Example:
        >>> from rosewood import Lexicon, Substituting
        >>> surface = Substituting(Lexicon.of({"good": ["fine"]})).surface
        >>> data = Dataset.from_dict({"text": ["a good film"], **tokenizer(["a good film"])})
        >>> set(with_substitutes(data, tokenizer, surface, ["text"]).column_names) - set(data.column_names)
        {'substitutes'}
    """
    which = changed_field(dataset, tokenizer, fields, field)
    aligner = Aligner(tokenizer, surface, slots, pieces, pattern)

    def substitutes(text: str, ids: Sequence[int], offsets: Offsets) -> dict[str, list]:
        entries = aligner.entries(text, ids, offsets)
        return {key: [getattr(entry, key) for entry in entries] for key in KEYS}

    return with_column(dataset, tokenizer, SUBSTITUTES, substitutes, fields, which, max_length)


def changed_field(
    dataset: Dataset, tokenizer: PreTrainedTokenizerBase, fields: Sequence[str], field: str | None
) -> int:
    """The number of the field whose words change, by default the last; refuses data that cannot be aligned."""
    if not isinstance(dataset, Dataset):
        raise DataError(f"expected a datasets.Dataset of tokenized texts, got {type(dataset).__name__}")
    if isinstance(fields, str) or not fields:
        raise DataError(f"fields: expected the names of the text columns, such as ['text'], got {fields!r}")
    field = fields[-1] if field is None else field
    if field not in fields:
        raise DataError(f"there is no text {field!r} whose words could be replaced: {closest(field, list(fields))}")
    if not getattr(tokenizer, "is_fast", False):
        raise DataError(
            f"{type(tokenizer).__name__} cannot say which tokens a word has: use a fast tokenizer (use_fast=True)"
        )
    missing = [name for name in ("input_ids", *fields) if name not in dataset.column_names]
    if missing:
        raise DataError(
            f"expected tokenized data that still have their texts; {', '.join(missing)} is missing, there are "
            f"{', '.join(dataset.column_names)}"
        )
    return list(fields).index(field)


def with_column(
    dataset: Dataset,
    tokenizer: PreTrainedTokenizerBase,
    column: str,
    make: Callable[[str, Sequence[int], Offsets], Mapping[str, Any]],
    fields: Sequence[str],
    which: int,
    max_length: int,
) -> Dataset:
    """Add a column that `make` finds from the text of one field, its token ids and the characters of each token."""

    def align(batch: dict[str, list]) -> dict[str, list]:
        texts = [batch[name] for name in fields]
        encoded = tokenizer(*texts, truncation=True, max_length=max_length, return_offsets_mapping=True)
        found = []
        for row, own in enumerate(batch["input_ids"]):
            if encoded["input_ids"][row] != list(own):
                raise DataError(
                    "the token ids of the data are not those of their texts: tokenize with truncation=True (of pairs "
                    "the longer text first) and the same max_length, without padding; "
                    f"text: {texts[which][row][:80]!r}"
                )
            sides = encoded.sequence_ids(row)
            offsets = [
                span if side == which else None
                for span, side in zip(encoded["offset_mapping"][row], sides, strict=True)
            ]
            found.append(make(texts[which][row], own, offsets))
        return {column: found}

    with quiet(len(dataset)):
        return dataset.map(align, batched=True, desc=column)


class Speller:
    """Finds the tokens that a word would have in the place of another."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        @lru_cache(maxsize=1_000_000)
        def encode(text: str) -> tuple[int, ...]:
            return tuple(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])

        self._encode = encode

    def spell(
        self, before: str, word: str, own: tuple[int, ...], substitutes: Sequence[str]
    ) -> Iterator[tuple[int, ...] | None]:
        """The tokens of each substitute where `word`, behind the text `before`, has its own; None if unclear."""
        prefix = self._prefix(before, word, own) if substitutes else None
        if prefix is None:
            yield from (None for _ in substitutes)
            return
        head = len(self._encode(prefix + word)) - len(own)
        lead = self._encode(prefix + word)[:head]
        for substitute in substitutes:
            tokens = self._encode(prefix + substitute)
            yield tokens[head:] if tokens[:head] == lead else None

    def alone(self, word: str) -> tuple[int, ...]:
        """The tokens of a word by itself."""
        return self._encode(word)

    def _prefix(self, before: str, word: str, own: tuple[int, ...]) -> str | None:
        """What must come before a word for it to get the tokens that it has in the text."""
        for prefix in ("", " ", before[-1:]):
            if self._encode(prefix + word)[-len(own) :] == own:
                return prefix
        return None


class Aligner:
    """Finds the tokens of a text's words and of what may replace them."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        surface: Surface,
        slots: int = 10,
        pieces: Pieces = "any",
        pattern: str = WORD,
        unknown: bool = False,
    ) -> None:
        self._surface, self._slots, self._pieces, self._pattern = surface, slots, pieces, pattern
        self._refused = None if unknown else tokenizer.unk_token_id
        self._speller = Speller(tokenizer)

    def choices(
        self, text: str, ids: Sequence[int], offsets: Offsets
    ) -> Iterator[tuple[list[int], list[tuple[int, ...]]]]:
        """The places of the tokens of each word, and the tokens of all that may replace it, if anything."""
        words = Words.split(text, self._pattern)
        places = list(self._places(text, words, offsets))
        surface = self._surface(words.words) if places else ()
        for number, start, tokens in places:
            own = [ids[i] for i in tokens]
            if found := self._choices(text[:start], words.words[number], surface[number], own):
                yield tokens, found

    def entries(self, text: str, ids: Sequence[int], offsets: Offsets) -> list[Entry]:
        """The substitutes of a text, stretched over the places of its words."""
        found: list[Entry] = []
        for tokens, choices in self.choices(text, ids, offsets):
            layers = [0] * len(tokens)
            for slot, choice in enumerate(choices, start=1):
                for j, token, share in stretched(choice, len(tokens)):
                    found.append(Entry(tokens[j], tokens[0], layers[j], slot, token, share))
                    layers[j] += 1
        return found

    def _places(self, text: str, words: Words, offsets: Offsets) -> Iterator[tuple[int, int, list[int]]]:
        """Number, first character and tokens of every word that has its tokens to itself, all of them."""
        spans = words.spans()
        for number, tokens in covering(text, spans, offsets).items():
            start, end = spans[number]
            if tokens[0].start == start and tokens[-1].end == end:  # neither cut off nor part of a token beyond
                yield number, start, [token.place for token in tokens]

    def _choices(self, before: str, word: str, substitutes: Sequence[str], own: Sequence[int]) -> list[tuple[int, ...]]:
        """The tokens of the substitutes, as they would be in the place of the word, without repetitions."""
        if self._pieces == "single" and len(own) > 1:
            return []
        found: dict[tuple[int, ...], None] = {}
        for tokens in self._speller.spell(before, word, tuple(own), substitutes):
            if tokens and self._refused not in tokens and (self._pieces == "any" or len(tokens) == len(own)):
                found[tokens] = None
        found.pop(tuple(own), None)
        return list(found)[: self._slots - 1]


class Token(NamedTuple):
    """A token of a text: its place, and its characters without the spaces around them."""

    place: int
    start: int
    end: int


def covering(
    text: str, spans: Sequence[tuple[int, int]], offsets: Sequence[tuple[int, int] | None]
) -> dict[int, list[Token]]:
    """The tokens that each word has a part in; words without any are left out. `spans` are the words' characters."""
    ends = [end for _, end in spans]
    covered: dict[int, list[Token]] = {}
    for place, span in enumerate(offsets):
        start, end = (0, 0) if span is None else _without_spaces(text, *span)
        number = bisect_right(ends, start)
        while start < end and number < len(spans) and spans[number][0] < end:
            covered.setdefault(number, []).append(Token(place, start, end))
            number += 1
    return covered


def _without_spaces(text: str, start: int, end: int) -> tuple[int, int]:
    """The characters of a token that are not spaces; some tokenizers count the space before a word as its own."""
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    return start, end


def stretched(tokens: Sequence[int], places: int) -> Iterator[tuple[int, int, float]]:
    """Place, token and share of each token of a substitute that is spread evenly over some places."""
    count = len(tokens)
    for place in range(places):
        start, end = place * count, (place + 1) * count  # in units of 1 / places of a token
        for i in range(start // places, -(-end // places)):
            overlap = min(end, (i + 1) * places) - max(start, i * places)
            yield place, tokens[i], overlap / count


Rows = list[dict[str, Any]]
Collate = Callable[[list[dict[str, np.ndarray]], Rows, torch.Tensor], Mapping[str, torch.Tensor]]
"""From what rows have in a column of arrays, the rows without it, and the token ids of their batch, its entry there."""


class SubstituteCollator:
    """Collates as another collator does, and beside that columns that perturbations read, by default the substitutes.

    The batch gets `substitutes`: `tokens`, `slots` and `shares`, each `(batch, layers, tokens)`, and `words`,
    `(batch, tokens)`: the place of the first token of each token's word. Where there is no substitute, the slot is 0.
    """

    def __init__(self, inner: Callable[[Rows], dict[str, Any]], columns: Mapping[str, Collate] | None = None) -> None:
        self.inner = inner
        self._columns = {SUBSTITUTES: collate_substitutes} if columns is None else columns

    def __call__(self, examples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        plain = [{key: value for key, value in one.items() if key not in self._columns} for one in examples]
        batch = self.inner(plain)
        added = {}
        for column, collate in self._columns.items():
            found = [example[column] for example in examples if example.get(column) is not None]
            if len(found) == len(examples):
                arrays = [{key: np.asarray(value) for key, value in one.items()} for one in found]
                added[column] = collate(arrays, plain, batch["input_ids"])
        return {**batch, **added}


def shift_of(example: Mapping[str, Any], ids: torch.Tensor) -> int:
    """By how many places a collator moved a row to the right, `ids` being that row with its padding."""
    own = np.asarray(example["input_ids"])
    return 0 if np.array_equal(ids[: len(own)].numpy(), own) else len(ids) - len(own)


def collate_substitutes(
    columns: list[dict[str, np.ndarray]], examples: Rows, ids: torch.Tensor
) -> dict[str, torch.Tensor]:
    """The substitutes of a batch, in dense tensors."""
    count, length = ids.shape
    layers = max((int(one["layer"].max()) + 1 for one in columns if len(one["layer"])), default=1)
    tokens = ids.numpy()[:, None, :].repeat(layers, axis=1)
    slots = np.zeros((count, layers, length), dtype=np.int64)
    shares = np.zeros((count, layers, length), dtype=np.float64)
    words = np.arange(length)[None].repeat(count, axis=0)
    for row, one in enumerate(columns):
        shift = shift_of(examples[row], ids[row])
        place, first = one["place"].astype(int) + shift, one["first"].astype(int) + shift
        at = (row, one["layer"].astype(int), place)
        tokens[at], slots[at], shares[at] = one["token"], one["slot"], one["share"]
        words[row, place] = first
    arrays = {"tokens": tokens, "slots": slots, "shares": shares, "words": words}
    return {name: torch.from_numpy(array) for name, array in arrays.items()}
