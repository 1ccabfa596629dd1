"""Masked words: how many, and by what; the same when a model trains on masked texts and when it votes over them."""

from __future__ import annotations

from transformers import PreTrainedTokenizerBase

from rosewood.errors import RunError


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
