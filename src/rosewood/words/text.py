"""A text as words and what is between them, so that some words can change, or be masked, and nothing else does.

Texts of a batch are put together from their tokens: see `rosewood.words.changes`. There, `picks` has for each word that
may change the number of the choice that takes its place, or -1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import regex  # its \w has combining marks, without which words of Hindi and many others fall to pieces
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from rosewood.errors import RunError

# Letters, with their marks, and digits, with apostrophes and hyphens inside: "don't", "well-known", "B2B".
WORD = r"[^\W_]+(?:['’-][^\W_]+)*"
BETWEEN_SPACES = r"[^\s\x1c-\x1f]+"  # four separators are spaces to str.split and not to regex


@dataclass(frozen=True)
class Words:
    """The words of a text, and the gaps before, between and after them: one more than there are words."""

    words: tuple[str, ...]
    gaps: tuple[str, ...]

    @classmethod
    def split(cls, text: str, pattern: str = WORD, protected: Sequence[str] = (), end: int | None = None) -> Words:
        """Find the words that begin before character `end`; strings in `protected` belong to the gaps."""
        guards = "|".join(regex.escape(each) for each in protected if each)
        stops = [edge for match in regex.finditer(guards, text) for edge in match.span()] if guards else []
        open_parts = [0, *stops, len(text)]
        spans = [
            match.span()
            for start, stop in zip(open_parts[::2], open_parts[1::2], strict=True)
            for match in regex.compile(pattern).finditer(text, start, stop)
            if end is None or match.start() < end
        ]
        edges = [0, *(edge for span in spans for edge in span), len(text)]
        gaps = tuple(text[start:stop] for start, stop in zip(edges[::2], edges[1::2], strict=True))
        return cls(tuple(text[start:stop] for start, stop in spans), gaps)

    def spans(self, words: Sequence[str] | None = None) -> list[tuple[int, int]]:
        """The first character of each word, and the one after its last; of these words instead, if some are given."""
        pieces = self._pieces(self.words if words is None else words)
        edges = list(accumulate(map(len, pieces)))[:-1]
        return list(zip(edges[::2], edges[1::2], strict=True))

    def join(self, words: Sequence[str]) -> str:
        """The text with these words instead; an empty one is left out, with the space after or before it."""
        return "".join(self._pieces(words))

    def aligned(self, words: Sequence[str]) -> list[tuple[str, str]]:
        """Gaps and words in turn, as they are and with these words instead; what is empty on both sides is left out."""
        return [pair for pair in zip(self._pieces(self.words), self._pieces(words), strict=True) if any(pair)]

    def _pieces(self, words: Sequence[str]) -> list[str]:
        pieces = [self.gaps[0]]
        for word, gap in zip(words, self.gaps[1:], strict=True):
            if not word and gap[:1].isspace():
                gap = gap[1:]
            elif not word:
                pieces[-1] = pieces[-1].removesuffix(" ")
            pieces += (word, gap)
        return pieces


def with_case_of(word: str, like: str) -> str:
    """The word in capitals, or with a capital letter first, where `like` is written so."""
    if len(like) > 1 and like.isupper():
        return word.upper()
    return word[:1].upper() + word[1:] if like[:1].isupper() else word


def replaced(words: Sequence[str], at: int, word: str) -> tuple[str, ...]:
    """The same words with one changed."""
    return (*words[:at], word, *words[at + 1 :])


def mask_of(tokenizer: PreTrainedTokenizerBase, otherwise: str) -> str:
    """What is written in place of a masked word; `otherwise` says what to do where there is nothing to write."""
    mask = tokenizer.mask_token or tokenizer.unk_token
    if mask is None:
        raise RunError(f"the tokenizer has no mask token: {otherwise}")
    return str(mask)


def kept_words(words: int, share: float) -> int:
    """How many of so many words are kept when a share of them is masked: one at least.

    Example:
        >>> kept_words(10, 0.3), kept_words(2, 0.9), kept_words(0, 0.9)
        (7, 1, 0)
    """
    return max(1, words - round(share * words)) if words else 0


Changes = Mapping[str, Tensor]
"""What `rosewood.words.changes.collate_changes` makes."""


class Spliced(NamedTuple):
    """Changed texts, `(batch, tokens)`: token ids, which of them are not padding, and where each comes from.

    `place` is where, in the unchanged text, the token or the word that it replaces was.
    """

    ids: Tensor
    real: Tensor
    place: Tensor


def spliced(ids: Tensor, real: Tensor, changes: Changes, picks: Tensor, padding: int) -> Spliced:
    """The texts with these changes; a change for which a text has no room left is not made."""
    size, length = ids.shape
    picks = fitting(changes, picks)
    made = picks >= 0
    choice = torch.full((size * length,), -1, device=ids.device)
    choice[changes["start"][made]] = picks[made]
    edges = torch.zeros(size * length + 1, dtype=torch.long, device=ids.device)
    edges.index_add_(0, changes["start"][made], torch.ones_like(picks[made]))
    edges.index_add_(0, changes["stop"][made], -torch.ones_like(picks[made]))
    replaced = edges.cumsum(0)[:-1].bool()
    counts = torch.where(choice < 0, (~replaced).long(), changes["lengths"][choice.clamp(min=0)])
    counts, choice = counts.view(size, length) * real, choice.view(size, length)

    ends = counts.cumsum(1)
    totals = ends[:, -1:]
    columns = torch.arange(int(totals.max()), device=ids.device).repeat(size, 1)
    padded_left = bool((~real[:, 0] & real[:, -1]).any())
    at = columns - (len(columns[0]) - totals) if padded_left else columns  # within the text
    there = (at >= 0) & (at < totals)
    place = torch.searchsorted(ends, at, right=True).clamp(max=length - 1)
    inside = (at - (ends - counts).gather(1, place)).clamp(min=0)
    chosen = choice.gather(1, place)
    token = changes["tokens"][(changes["begin"][chosen.clamp(min=0)] + inside).clamp(max=len(changes["tokens"]) - 1)]
    found = torch.where(chosen < 0, ids.gather(1, place), token).masked_fill(~there, padding)
    return Spliced(found, there, place)


def fitting(changes: Changes, picks: Tensor) -> Tensor:
    """The picks less those that would make a text longer than there is room for, counted from its beginning."""
    more = changes["lengths"][picks.clamp(min=0)] - (changes["stop"] - changes["start"])
    more = (more * (picks >= 0)).clamp(min=0)
    upto = more.cumsum(0)
    before = torch.zeros_like(changes["room"]).index_add_(0, changes["row"], more).cumsum(0)
    before = torch.cat([before.new_zeros(1), before[:-1]])  # in earlier rows
    fits = upto - before[changes["row"]] <= changes["room"][changes["row"]]
    return torch.where(fits | (more == 0), picks, -1)


def random_picks(changes: Changes, share: Tensor, draws: Tensor, itself: bool = False) -> Tensor:
    """Each word changes with the probability `share`, `(batch,)`, of its text, to any of its choices alike.

    `draws` are numbers in [0, 1), `(batch, 2, tokens)`. With `itself` the word is one of its choices.
    """
    chance, which = (draws[:, i].flatten()[changes["start"]] for i in (0, 1))
    last = changes["choices"] - 1
    number = (which * (changes["choices"] + itself)).long().clamp(max=last + itself)
    return torch.where((chance < share[changes["row"]]) & (number <= last), changes["first"] + number, -1)


def counted_picks(changes: Changes, counts: Tensor, draws: Tensor) -> Tensor:
    """So many words of each text, `(batch,)`, change, any of them alike, to any of their choices alike.

    `draws` are numbers in [0, 1), `(batch, 2, tokens)`.
    """
    everywhere = random_picks(changes, torch.ones_like(counts, dtype=draws.dtype), draws)
    chance = draws[:, 0].flatten()[changes["start"]]
    return torch.where(_ranks(changes, chance) < counts[changes["row"]], everywhere, -1)


def words_of_texts(changes: Changes) -> Tensor:
    """How many words of each text may change, `(batch,)`."""
    return torch.zeros_like(changes["room"]).index_add_(0, changes["row"], torch.ones_like(changes["row"]))


def _ranks(changes: Changes, values: Tensor) -> Tensor:
    """The place of each word among those of its text, the lowest value first."""
    counts = words_of_texts(changes)
    order = values.argsort(stable=True)
    order = order[changes["row"][order].argsort(stable=True)]  # row by row
    ranks = torch.empty_like(order)
    ranks[order] = torch.arange(len(order), device=order.device) - (counts.cumsum(0) - counts)[changes["row"][order]]
    return ranks


def best_picks(changes: Changes, share: Tensor, gains: Tensor) -> Tensor:
    """The choice with the highest gain of each word, in that `share`, `(batch,)`, of a text's words that gains most.

    At least one word of a text is picked if any gains at all; a word without gain never is. `gains` are those of the
    choices.
    """
    words, numbers = len(changes["row"]), torch.arange(len(gains), device=gains.device)
    best = gains.new_full((words,), -torch.inf).scatter_reduce_(0, changes["word"], gains, "amax")
    first = torch.where(gains == best[changes["word"]], numbers, len(gains))
    picks = numbers.new_full((words,), len(gains)).scatter_reduce_(0, changes["word"], first, "amin")
    counts = words_of_texts(changes)
    allowed = (share * counts).ceil().clamp(min=1)
    return torch.where((_ranks(changes, -best) < allowed[changes["row"]]) & (best > 0), picks, -1)


def first_order_gains(changes: Changes, slopes: Tensor, own: Tensor, vectors: Tensor) -> Tensor:
    """By how much each choice would change a loss, to first order.

    The vectors of a choice are stretched over the places of the word, as in `rosewood.words.alignment`.

    Args:
        changes: Those of the batch.
        slopes: The gradient of the loss with respect to each token's vector, `(batch, tokens, width)`.
        own: These vectors.
        vectors: Those of `changes["tokens"]`, `(number of them, width)`.
    """
    word = changes["word"]
    dtype = torch.promote_types(slopes.dtype, torch.float32)
    slopes, own, vectors = slopes.to(dtype), own.to(dtype), vectors.to(dtype)
    choice = torch.arange(len(word), device=word.device).repeat_interleave(changes["lengths"])
    inside = torch.arange(len(choice), device=word.device) - changes["begin"][choice]
    lengths, of_word = changes["lengths"][choice], word[choice]
    start, row = changes["start"][of_word], changes["row"][of_word]
    spans = changes["stop"][of_word] - start
    # The integral of the slope up to a place between tokens: a vector's share of a place is a difference of two.
    upto, at_place = _sums(slopes), slopes.flatten(0, 1)

    def integral(numerator: Tensor) -> Tensor:
        place, rest = start + numerator // lengths, (numerator % lengths) / lengths
        return upto[place + row] + rest.to(dtype).unsqueeze(1) * at_place[place.clamp(max=len(at_place) - 1)]

    weight = integral(spans * (inside + 1)) - integral(spans * inside)
    there = torch.zeros(len(word), dtype=dtype, device=word.device)
    there.index_add_(0, choice, (weight * vectors).sum(1))
    here = _sums((slopes * own).sum(2, keepdim=True)).squeeze(1)
    return there - (here[changes["stop"] + changes["row"]] - here[changes["start"] + changes["row"]])[word]


def _sums(values: Tensor) -> Tensor:
    """Sums over the places before each, and before the end: `(batch, tokens, n)` -> `(batch * (tokens + 1), n)`."""
    return torch.nn.functional.pad(values.cumsum(1), (0, 0, 1, 0)).flatten(0, 1)
