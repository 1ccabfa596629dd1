"""What a search is given, and what it asks: the target, the resources, questions, and the order of importance."""

from __future__ import annotations

from collections.abc import Collection, Generator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rosewood.attacks.runner.constraints import Constraint
from rosewood.attacks.runner.scores import Scores, highest_first
from rosewood.attacks.runner.slopes import Edit
from rosewood.words.constraints import Encoder, LanguageModel, Surface, Tagger
from rosewood.words.language_models import CausalLM, MaskedLM
from rosewood.words.lexicon import Lexicon, Pair
from rosewood.words.text import Words, replaced


@dataclass(frozen=True)
class Resources:
    """Everything an attack was given."""

    lexicon: Lexicon | None = None
    language_model: LanguageModel | None = None
    tagger: Tagger | None = None
    encoder: Encoder | None = None
    masked_lm: MaskedLM | None = None
    causal_lm: CausalLM | None = None
    antonyms: Collection[Pair] = ()  # decide nothing: records say where one replaces a word

    def limited(self, most: int | None) -> Resources:
        """With at most so many words for the place of a word, the nearest."""
        if most is None:
            return self
        lexicon, masked_lm = self.lexicon, self.masked_lm
        return replace(
            self,
            lexicon=None if lexicon is None else lexicon.limited(most),
            masked_lm=None if masked_lm is None else masked_lm.limited(most),
        )


Candidate = tuple[str, ...]
"""A word for each word of the text; an empty one is left out."""


class Question(NamedTuple):
    """Candidates to score. Moves are results that the attack accepts: the first that the model gets wrong ends it.

    Trials are results that the attack would accept, but it wants to know all of them before it chooses. With `edits`,
    some of each candidate, the scores have slopes, too.
    """

    candidates: Sequence[Candidate]
    moves: bool = False
    edits: Sequence[Sequence[Edit]] | None = None
    asker: str | None = None  # which of several attacks asks
    trials: bool = False


class OutOfQueriesError(Exception):
    """Raised where a search asks for slopes that the budget has no room for; who leaves it alone is at an end."""


def probe(candidates: Sequence[Candidate]) -> Question:
    """Ask only; a wrong answer of the model ends nothing (a word was left out, say, to see what it is worth).

    Args:
        candidates: texts, each as a tuple with a word for each word of the original.

    Returns:
        The question, which a search yields; it gets the `Scores` of the candidates back.

    Example:
        >>> probe([("a", "", "film"), ("", "good", "film")]).moves
        False
    """
    return Question(candidates)


def trial(candidates: Sequence[Candidate]) -> Question:
    """Ask which of these to go on with; each would be a success if the model is wrong.

    The search says by a `move` which of the wrong ones it takes. With a budget, which may end the search before that,
    any of them counts in the end.

    Args:
        candidates: texts, each as a tuple with a word for each word of the original.

    Returns:
        The question, which a search yields; it gets the `Scores` of the candidates back.

    Example:
        >>> trial([("a", "fine", "film"), ("a", "nice", "film")]).trials
        True
    """
    return Question(candidates, trials=True)


def move(candidates: Sequence[Candidate]) -> Question:
    """Ask whether one of these, best first, is a success.

    Args:
        candidates: texts, each as a tuple with a word for each word of the original.

    Returns:
        The question, which a search yields. The first candidate that the model gets wrong ends the search; else it gets
        the `Scores` of all back.

    Example:
        >>> move([("a", "fine", "film")]).moves
        True
    """
    return Question(candidates, moves=True)


def slopes(candidates: Sequence[Candidate], edits: Sequence[Sequence[Edit]]) -> Question:
    """Ask what each of some edits of each candidate would do to its value, to first order; costs three queries each."""
    return Question(candidates, edits=edits)


@dataclass(frozen=True)
class Target:
    """One correctly classified example, as an attack sees it."""

    text: Words
    label: int
    clean: Scores  # of the text as it is: one candidate; none yet for an attack that `opens`
    resources: Resources
    rng: np.random.Generator  # depends on the seed and the texts alone
    constraints: Sequence[Constraint] = ()
    bounded: bool = False  # whether queries are: what is asked first then matters

    @property
    def words(self) -> Candidate:
        """The words that reach the model: what truncation cuts off is not worth a query."""
        return self.text.words

    def allowed(self, candidates: Sequence[Candidate], last: Candidate | None = None) -> list[int]:
        """Which of the candidates the constraints allow; `last` are the words that the search goes on from."""
        kept = list(range(len(candidates)))
        for rule in self.constraints:
            asked = [candidates[i] for i in kept]
            allows = rule.allows(self.text, asked, last or self.words, self.resources)
            kept = [i for i, allowed in zip(kept, allows, strict=True) if allowed]
        return kept

    def allowed_alone(self, surface: Surface) -> Surface:
        """What may replace each word while all others stay as they are."""
        texts = [[replaced(self.words, at, each) for each in found] for at, found in enumerate(surface)]
        return [tuple(found[i] for i in self.allowed(own)) for found, own in zip(surface, texts, strict=True)]


Search = Generator[Question, Scores, None]


def by_importance(target: Target) -> Generator[Question, Scores, NDArray[np.int64]]:
    """The places of all words, the most important first.

    A word is worth what the margin loses when the word is left out. With probabilities it is Jin et al. 2020, eq. 2:
    what the right class loses and, where the prediction flips, what the new class gains. The margin has the new class
    in it already; for two classes the order is the same.

    Args:
        target: the example under attack.

    Returns:
        A generator for `yield from` in a search: it asks for the text without each of its words, and gives the places.

    Example:
        >>> def search(self, target):
        ...     for at in (yield from by_importance(target)):
        ...         yield move([replaced(target.words, at, "")])
    """
    words, clean = target.words, target.clean
    scores = yield probe([replaced(words, at, "") for at in range(len(words))])
    if scores.measure != "probability":
        return highest_first(clean.values[0] - scores.values, scores.near)
    gained = (scores.probabilities - clean.probabilities)[np.arange(len(words)), scores.predictions]
    worth = clean.chances[0] - scores.chances + np.where(scores.wrong, gained, 0.0)
    return highest_first(worth, scores.near)
