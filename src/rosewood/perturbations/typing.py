"""Words mistyped, or written with letters that only look right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field
from torch import Tensor

from rosewood.protocol import Batch
from rosewood.tensors import draws
from rosewood.words.alignment import Surface
from rosewood.words.changes import WordChange
from rosewood.words.noise import Misspelling

if TYPE_CHECKING:
    from rosewood.recipe import Stage
    from rosewood.words.lexicon import Lexicon

Kind = Literal["swap", "drop", "insert", "double", "neighbour_key", "recase", "homoglyph", "invisible"]
EVERY: tuple[Kind, ...] = ("swap", "drop", "insert", "double", "neighbour_key", "recase", "homoglyph", "invisible")


@dataclass(frozen=True)
class Typing(WordChange):
    """Misspells words with the slips that noises and typo attacks are made of (`rosewood.words.noise`).

    Each text has a strength of its own: the share of its words that change is drawn from U(0, `share`). `pick` says
    which words and which misspelt forms, see `words.changes`. A word of at least `min_letters` letters has up to
    `forms` misspelt forms, as many of each of the `kinds`, the same wherever it occurs; forms that the tokenizer does
    not tell apart count once, and those that it leaves as they were, such as capitals for a model that knows none, not
    at all. The first letter stays, but for its case.
    """

    may_be_unknown = True

    share: Annotated[float, Field(ge=0, le=1)] = 0.6
    kinds: Annotated[tuple[Kind, ...], Field(min_length=1)] = EVERY
    forms: Annotated[int, Field(ge=1)] = 16
    min_letters: Annotated[int, Field(ge=2)] = 3

    def surface(self, lexicon: Lexicon | None, seed: int, tokenizer: Any) -> Surface:
        return Misspelling(self.kinds, self.forms, self.min_letters, seed).surface

    def most(self) -> int:
        return self.forms

    def shares(self, batch: Batch) -> Tensor:
        return super().shares(batch) * draws.uniform(batch, 1)[:, 0]

    def explain(self, stage: Stage) -> list[str]:
        return [*super().explain(stage), f"that share drawn for each text from U(0, {self.share:g})"]
