"""Which words may stand where: the lexicon's substitutes of a text, less what the constraints rule out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rosewood.attacks.search.questions import Candidate, Target
from rosewood.attacks.search.resources import LanguageModel, Tagger
from rosewood.data.words import BETWEEN_SPACES, WORD, with_case_of
from rosewood.protocol import Attack

Surface = list[tuple[str, ...]]
"""The substitutes of each word of a text, without the word itself."""


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
        """What may stand in for each word; constraints look at the original text, so nothing drifts."""
        lexicon = target.resources.lexicon
        assert lexicon is not None
        keys = target.words if self.exact_case else tuple(word.lower() for word in target.words)
        found = self.allowed([lexicon.substitutes(key) for key in keys], target)
        if self.exact_case:
            return found
        cased = [
            [with_case_of(substitute, word) for substitute in substitutes]
            for word, substitutes in zip(target.words, found, strict=True)
        ]
        # "US" has "us" as a neighbour's neighbour: in capitals it would be the word itself.
        return [
            tuple(each for each in dict.fromkeys(substitutes) if each != word)
            for word, substitutes in zip(target.words, cased, strict=True)
        ]

    def allowed(self, surface: Surface, target: Target) -> Surface:
        """The part of the surface that the attack's constraints leave; all of it by default."""
        return surface


def fluent(surface: Surface, words: Candidate, model: LanguageModel, window: int, min_log_ratio: float) -> Surface:
    """Keep substitutes that a language model finds not much less likely than the word, in a window around it.

    The rules of Jia et al. (2019): lower case; unknown words of the context are left out; an unknown substitute is
    refused, and if the word itself is unknown every known substitute is allowed.
    """
    lowered = [word.lower() for word in words]

    def keep(at: int, substitute: str) -> bool:
        if substitute.lower() not in model:
            return False
        if lowered[at] not in model:
            return True
        before = [word for word in lowered[max(0, at - window) : at] if word in model]
        after = [word for word in lowered[at + 1 : at + 1 + window] if word in model]
        gain = model.logp([*before, substitute.lower(), *after]) - model.logp([*before, lowered[at], *after])
        return gain >= min_log_ratio

    return [tuple(each for each in found if keep(at, each)) for at, found in enumerate(surface)]


def same_part_of_speech(surface: Surface, words: Candidate, tagger: Tagger) -> Surface:
    """Keep substitutes that the tagger, in the place of the word, gives the tag of the word."""

    def tag(at: int, sentence: Sequence[str]) -> str:
        return tagger(sentence)[at]

    tags = tagger(words)
    return [
        tuple(each for each in found if tag(at, [*words[:at], each, *words[at + 1 :]]) == tags[at])
        for at, found in enumerate(surface)
    ]
