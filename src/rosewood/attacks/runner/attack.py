"""What an attack is: settings, what it needs, and a search. The runner does the rest.

What several attacks share is here too: a greedy search (`Descent`), substitutes from a lexicon (`WordSubstitution`),
and bounds on what may happen to the meaning (`MeaningBounds`).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import nn

from rosewood.attacks.runner.scores import Floats, Measure, Scores, first_lowest, highest_first, lower
from rosewood.attacks.runner.search import Candidate, Question, Resources, Search, Target, move, trial
from rosewood.protocol import Component
from rosewood.words.constraints import Constraint, Substituting, Surface, around, similarities
from rosewood.words.text import BETWEEN_SPACES, WORD


class Attack(Component):
    """How a text is changed until the model is wrong; no part of a recipe, but found and set like one.

    An attack writes the search only: who is attacked, queries, budgets and success are the engine's.
    """

    opens: ClassVar[bool] = False
    """Whether the first question of the search is about the text as it is: its answer then says whether the model is
    right, and no question is spent on that alone."""
    exact: ClassVar[bool] = False
    """Whether the search needs answers in float32, whatever precision is asked for."""
    examples_together: ClassVar[int] = 32
    """How many examples share batches, and are lost if the process is killed: enough to fill the batches."""

    def word_pattern(self) -> str:
        """What counts as a word, as a regular expression without groups."""
        return WORD

    def measure(self) -> Measure:
        """What the search lowers; the margin, unless a paper has something else and a setting asks for it."""
        return "margin"

    def needs(self) -> dict[str, str]:
        """The resources that these settings need; to each a sentence that says why, and what to do without it."""
        return {}

    def lacks(self, resources: Resources) -> list[str]:
        """Sentences that say what is needed and was not given; none if all is there."""
        return [why for name, why in self.needs().items() if getattr(resources, name) is None]

    def suited_to(self, model: nn.Module) -> Attack:
        """The attack with settings under which it can be carried out on a model; this one, or one that says otherwise.

        Results are under the settings that it has then.
        """
        return self

    def changeable(self, words: Sequence[str], resources: Resources) -> int | None:
        """How many of the words of a text the attack could change at all; None if it cannot say."""
        return None

    def search(self, target: Target) -> Search:
        """Ask for the scores of candidates, one question after the other, until out of ideas."""
        raise NotImplementedError


@dataclass
class Descent:
    """Where a greedy search has come to: the words as they are by now, and what they score."""

    target: Target
    words: Candidate
    value: float

    @classmethod
    def begin(cls, target: Target) -> Descent:
        return cls(target, target.words, float(target.clean.values[0]))

    def step(
        self, tried: Sequence[Candidate], preference: Floats | None = None
    ) -> Generator[Question, Scores, int | None]:
        """Keep the candidate with the lowest value if it lowers the value; gives its index, or None.

        A candidate that makes the model wrong ends the attack: of several the one of the highest `preference`, by
        default the one with the lowest value.
        """
        allowed = self.target.allowed(tried, self.words)
        if not allowed:
            return None
        scores = yield trial([tried[i] for i in allowed])
        if scores.wrong.any():
            order = (
                highest_first(-scores.values, scores.near)
                if preference is None
                else np.argsort(-preference[allowed], kind="stable")
            )
            yield move([tried[allowed[i]] for i in order if scores.wrong[i]])
        best = first_lowest(scores.values, scores.near)
        if not lower(scores.values[best], self.value, scores.near):
            return None
        self.words, self.value = tried[allowed[best]], float(scores.values[best])
        return allowed[best]

    def similar_step(
        self, tried: Sequence[Candidate], at: int, min_similarity: float | None, window: int
    ) -> Generator[Question, Scores, int | None]:
        """A step among the candidates whose text is similar enough to the original; the most similar one is preferred.

        They differ from the words so far in place `at`. A text of more words than the window is compared in the
        window around that place. Without a bound the first one is preferred.
        """
        if min_similarity is None or not tried:
            return (yield from self.step(tried, np.zeros(len(tried))))
        target = self.target
        encoder = target.resources.encoder
        assert encoder is not None
        if len(target.words) > window:
            seen = around(at, len(target.words), window)
            texts = [" ".join(words[seen]) for words in (target.words, *tried)]
        else:
            texts = [target.text.join(words) for words in (target.words, *tried)]
        alike = similarities(encoder, texts)
        close = np.flatnonzero(alike >= min_similarity).tolist()
        kept = yield from self.step([tried[i] for i in close], alike[close].round(5))
        return None if kept is None else close[kept]


@dataclass(frozen=True)
class WordSubstitution(Attack):
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


class MeaningBounds(Attack):
    """Attacks that keep the meaning as far as an encoder and a tagger can tell.

    The settings are declared by each: their order is part of the fingerprint of its results.
    """

    min_similarity: float | None
    same_part_of_speech: bool

    def needs(self) -> dict[str, str]:
        needed = super().needs()
        if self.min_similarity is not None:
            needed["encoder"] = (
                f"{self.name} bounds the similarity of sentences: pass an encoder, such as "
                "encoder=SentenceEncoder.load(), or set min_similarity to null to attack without"
            )
        if self.same_part_of_speech:
            needed["tagger"] = f"{self.name} is set to keep the part of speech: pass a tagger, or set it to false"
        return needed
