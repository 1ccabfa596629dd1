"""Words masked, as in the copies of a smoothed model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rosewood.words.alignment import Surface
from rosewood.words.changes import Share, WordChange
from rosewood.words.text import Changes, counted_picks, kept_words, mask_of, words_of_texts

if TYPE_CHECKING:
    from rosewood.recipe import Stage
    from rosewood.words.lexicon import Lexicon


@dataclass(frozen=True)
class Masking(WordChange):
    """Writes the mask token in place of `share` of the words, the same number of them in all texts of one length.

    That is the noise of RanMASK (Zeng et al., 2021) and of `smoothed:mask`: a word is what is between spaces, gets one
    mask however many tokens it has, and at least one word is kept. `pick: random` masks any words alike.
    """

    may_be_unknown = True  # a tokenizer without a mask token writes the unknown one
    pattern = r"\S+"  # what is between spaces, as in `rosewood.defences.runner.copies`

    share: Share = 0.3

    def surface(self, lexicon: Lexicon | None, seed: int, tokenizer: Any) -> Surface:
        mask = mask_of(tokenizer, "train with perturbation token_drop")
        return lambda words: [(mask,)] * len(words)

    def most(self) -> int:
        return 1

    def drawn(self, changes: Changes, share: Tensor, numbers: Tensor) -> Tensor:
        words = words_of_texts(changes)
        kept = [kept_words(count, self.share) for count in range(int(words.max()) + 1)]
        return counted_picks(changes, words - torch.tensor(kept, device=words.device)[words], numbers)

    def explain(self, stage: Stage) -> list[str]:
        each = "each changeable word changed with probability"
        return [
            line.replace(f"{each} {self.share:g}", f"{self.share:g} of its words masked")
            for line in super().explain(stage)
        ]
