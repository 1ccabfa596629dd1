"""Which words may stand where: the lexicon's substitutes of a text, less what the constraints rule out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from unicodedata import normalize

from rosewood.data.constraints import Constraint, Surface
from rosewood.data.lexicon import Lexicon
from rosewood.data.words import with_case_of


@dataclass(frozen=True)
class Substituting:
    """How substitutes are found: by default words are looked up in lower case, and substitutes take on their case.

    With `exact_case` words are looked up as they are written, so that a capitalised word has no substitutes, as in some
    of the papers' code.
    """

    lexicon: Lexicon
    exact_case: bool = False
    constraints: Sequence[Constraint] = ()

    def surface(self, words: Sequence[str]) -> Surface:
        """What may stand in for each word of a text, without the word itself; best first."""
        surface = [self.lexicon.substitutes(key) for key in self._keys(words)]
        for constraint in self.constraints:
            surface = constraint(words, surface)
        return surface if self.exact_case else [_cased(*pair) for pair in zip(words, surface, strict=True)]

    def known(self, words: Sequence[str]) -> int:
        """How many of the words have a substitute in the lexicon, whatever the constraints leave of them."""
        return sum(bool(self.lexicon.substitutes(key)) for key in self._keys(words))

    def _keys(self, words: Sequence[str]) -> Sequence[str]:
        return words if self.exact_case else [normalize("NFC", word.lower()) for word in words]


def _cased(word: str, substitutes: Sequence[str]) -> tuple[str, ...]:
    cased = dict.fromkeys(with_case_of(each, word) for each in substitutes)
    # "US" has "us" as a neighbour's neighbour: in capitals it would be the word itself.
    return tuple(each for each in cased if each != word)
