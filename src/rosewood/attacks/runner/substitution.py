"""Attacks that replace words by those of a lexicon: how they find what may stand where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rosewood.attacks.runner.attack import Attack
from rosewood.attacks.runner.example import Resources, Target
from rosewood.words.constraints import Constraint, Substituting, Surface
from rosewood.words.text import BETWEEN_SPACES, WORD


@dataclass(frozen=True)
class Substitution(Attack):
    """Settings of every attack that replaces words by those of a lexicon.

    The papers' code splits text that was tokenized before at its spaces (`split_at_spaces`), and some of it looks words
    up as they are written, so that a capitalised word has no substitutes (`exact_case`). By default words are found in
    any text, looked up in lower case, and their substitutes take on their case.
    """

    exact_case: bool = False
    split_at_spaces: bool = False

    def word_pattern(self) -> str:
        return BETWEEN_SPACES if self.split_at_spaces else WORD

    def needs(self) -> dict[str, str]:
        return {
            "lexicon": f"{self.name} replaces words by those of a lexicon: pass one, such as "
            "lexicon=Lexicon.counter_fitted(data_dir)"
        }

    def surface(self, target: Target) -> Surface:
        """What may replace each word."""
        lexicon = target.resources.lexicon
        assert lexicon is not None
        return Substituting(lexicon, self.exact_case, self.constraints(target.resources)).surface(target.words)

    def changeable(self, words: Sequence[str], resources: Resources) -> int:
        """Words that the lexicon has substitutes for: none of a language that it does not know."""
        assert resources.lexicon is not None
        return Substituting(resources.lexicon, self.exact_case).known(words)

    def constraints(self, resources: Resources) -> Sequence[Constraint]:
        """What rules substitutes out; nothing by default."""
        return ()
