"""A text as words and what is between them, so that some words can change, or be masked, and nothing else does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import regex  # its \w has combining marks, without which words of Hindi and many others fall to pieces
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
