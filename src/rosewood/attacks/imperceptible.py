"""Imperceptible edits (Boucher et al., "Bad Characters", S&P 2022): a person reads the same, a model does not.

Four kinds of edits of a letter: an *invisible* character of no width before it; a *homoglyph*, which looks the same, in
its place; a *reordering*, two letters that change places in memory while control characters for text from right to left
show them in the old order; a *deletion*, another letter and a backspace before it, of which nothing is shown.

The paper looks for the places of the edits by differential evolution (`strategy: evolution`): an individual has one
number for each edit that the budget allows, which says what is edited, or nothing. `greedy` goes through the words by
importance, tries some edits of each kind on the letters of each, and keeps the one that lowers the margin most; it
breaks more within the same number of queries (docs/attacks.md), so it is the default.

What reaches the model depends on its tokenizer. Those of BERT and its like remove all control and format characters
first: an invisible character is then no edit at all, a reordering is two letters swapped, and a deletion is a letter
inserted. Byte-level tokenizers (GPT-2, RoBERTa) keep everything.

Deviations: edits are within words, not in spaces or punctuation; kinds are combined (the paper runs one at a time: set
the others to false); homoglyphs are those of `rosewood.words.noise`, fewer than Unicode's list; what comes before a
backspace is drawn once a letter of the text, not evolved; one letter is edited at most once; the evolution asks
for a generation at a time, and keeps what it has where a child is as good; p_y, whose logarithm the paper's code
lowers, is `scores: probability`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from random import Random
from string import ascii_lowercase
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field

from rosewood.attacks.runner.attack import Attack, Descent
from rosewood.attacks.runner.scores import Floats, Measure, first_lowest, highest_first
from rosewood.attacks.runner.search import Candidate, Resources, Search, Target, by_importance, move, trial
from rosewood.words.noise import HOMOGLYPHS, letters_of

ZERO_WIDTH = "\u200b\u200c\u200d"
BACKSPACE = "\b"
# Left-to-right and right-to-left override, left-to-right isolate, the ends of an isolate and of an override.
LRO, RLO, LRI, PDI, PDF = "\u202d\u202e\u2066\u2069\u202c"
CROSSOVER = 0.7
LEAST_STEP, LARGEST_STEP = 0.5, 1.0


class HiddenEdit(NamedTuple):
    """A change of one letter, or of two, of one word."""

    word: int
    letters: range
    becomes: str


@dataclass(frozen=True)
class Imperceptible(Attack):
    """A few edits of letters that a reader does not see."""

    max_edits: Annotated[int, Field(ge=1)] = 5
    """Edits of a text, at most: the perturbation budget of the paper."""
    invisible: bool = True
    homoglyphs: bool = True
    reorderings: bool = True
    deletions: bool = True
    strategy: Literal["greedy", "evolution"] = "greedy"
    tries: Annotated[int, Field(ge=1)] = 2
    """Greedy: edits of each kind that are tried on a word at a time."""
    population: Annotated[int, Field(ge=1)] = 32
    """Evolution: individuals for each edit of the budget, at least four in all."""
    generations: Annotated[int, Field(ge=0)] = 3
    """Evolution: generations after the first."""
    scores: Literal["margin", "probability"] = "margin"
    """What is lowered: the margin, on a scale that the model's confidence does not change; or p_y, as published."""

    def settings(self) -> dict[str, Any]:
        """Without what is as it was before there was the setting: results of older versions stay comparable."""
        found = super().settings()
        return {name: value for name, value in found.items() if name != "scores" or value != "margin"}

    def measure(self) -> Measure:
        return self.scores

    def changeable(self, words: Sequence[str], resources: Resources) -> int:
        return sum(any(map(str.isalnum, word)) for word in words)

    def search(self, target: Target) -> Search:
        rng = Random(int(target.rng.integers(2**63)))
        edits = [list(self._edits(at, word, rng)) for at, word in enumerate(target.words)]
        if any(map(any, edits)):
            yield from self._greedy(target, edits, rng) if self.strategy == "greedy" else self._evolve(target, edits)

    def _kinds(self) -> list[_Kind]:
        chosen = (self.invisible, self.homoglyphs, self.reorderings, self.deletions)
        return [kind for kind, wanted in zip(KINDS, chosen, strict=True) if wanted]

    def _edits(self, at: int, word: str, rng: Random) -> Iterable[list[HiddenEdit]]:
        """The edits of each kind that a word could have."""
        letters = letters_of(word)
        for kind in self._kinds():
            found = [(i, kind(letters[i : i + 2], rng)) for i in range(len(letters))]
            span = 2 if kind is _reordered else 1
            yield [HiddenEdit(at, range(i, i + span), becomes) for i, becomes in found if becomes]

    def _greedy(self, target: Target, edits: list[list[list[HiddenEdit]]], rng: Random) -> Search:
        order = yield from by_importance(target)
        now, made = Descent.begin(target), list[HiddenEdit]()
        before = -1
        while before < len(made):  # around again as long as something helps
            before = len(made)
            for at in order:
                free = [[each for each in found if not _overlaps(each, made)] for found in edits[at]]
                tried = [each for found in free for each in rng.sample(found, min(self.tries, len(found)))]
                kept = yield from now.step([_edited(target.words, [*made, each]) for each in tried])
                if kept is not None:
                    made.append(tried[kept])
                if len(made) == self.max_edits:
                    return

    def _evolve(self, target: Target, edits: list[list[list[HiddenEdit]]]) -> Search:
        """Differential evolution, "best/1/bin" with a step drawn for each generation, as scipy's default."""
        known = sorted(
            (each for kinds in edits for found in kinds for each in found), key=lambda e: (e.word, e.letters[0])
        )
        size, rng = max(4, self.population * self.max_edits), target.rng
        # Each column has one value in each of `size` equal parts: a Latin hypercube.
        genes = (
            rng.permuted(np.tile(np.arange(size), (self.max_edits, 1)), axis=1).T + rng.random((size, self.max_edits))
        ) / size
        fitness: Floats = np.full(size, np.inf)
        children = genes
        for _ in range(self.generations + 1):
            tried = [_edited(target.words, _chosen(individual, known)) for individual in children]
            allowed = target.allowed(tried)
            scores = yield trial([tried[i] for i in allowed])
            if scores.wrong.any():
                order = highest_first(-scores.values, scores.near)
                yield move([tried[allowed[i]] for i in order if scores.wrong[i]])
            values: Floats = np.full(size, np.inf)
            values[allowed] = scores.values
            better = values < fitness - scores.near
            genes, fitness = np.where(better[:, None], children, genes), np.where(better, values, fitness)
            children = _children(genes, first_lowest(fitness, scores.near), rng)


_Kind = Callable[[Sequence[str], Random], str]
"""From a letter, and the next one if there is one, to what takes their place; empty if it cannot be edited."""


def _hidden(letters: Sequence[str], rng: Random) -> str:
    return rng.choice(ZERO_WIDTH) + letters[0]


def _look_alike(letters: Sequence[str], rng: Random) -> str:
    return HOMOGLYPHS.get(letters[0], "")


def _reordered(letters: Sequence[str], rng: Random) -> str:
    if len(set(letters)) < 2:
        return ""
    one, two = letters
    return "".join([LRO, LRI, RLO, LRI, two, PDI, LRI, one, PDI, PDF, PDI, PDF])


def _deleted(letters: Sequence[str], rng: Random) -> str:
    return rng.choice(ascii_lowercase) + BACKSPACE + letters[0]


KINDS: tuple[_Kind, ...] = (_hidden, _look_alike, _reordered, _deleted)


def _overlaps(edit: HiddenEdit, made: Iterable[HiddenEdit]) -> bool:
    return any(edit.word == other.word and set(edit.letters) & set(other.letters) for other in made)


def _edited(words: Candidate, edits: Iterable[HiddenEdit]) -> Candidate:
    """The words after the edits; one that would change a letter again is left out."""
    changed: dict[int, list[str]] = {}
    made: list[HiddenEdit] = []
    for edit in edits:
        if not _overlaps(edit, made):
            made.append(edit)
            letters = changed.setdefault(edit.word, letters_of(words[edit.word]))
            letters[edit.letters[0]] = edit.becomes
            for i in edit.letters[1:]:
                letters[i] = ""
    return tuple("".join(changed.get(at, word)) for at, word in enumerate(words))


def _chosen(individual: Floats, known: Sequence[HiddenEdit]) -> list[HiddenEdit]:
    """Numbers from 0 to 1 as edits; the lowest numbers mean no edit."""
    numbers = np.minimum(individual * (len(known) + 1), len(known)).astype(int)
    return [known[i - 1] for i in numbers if i]


def _children(genes: Floats, best: int, rng: np.random.Generator) -> Floats:
    size, length = genes.shape
    order = rng.random((size, size))
    np.fill_diagonal(order, np.inf)  # nobody is a parent of its own child twice
    one, two = np.argsort(order, axis=1)[:, :2].T
    mutants = genes[best] + rng.uniform(LEAST_STEP, LARGEST_STEP) * (genes[one] - genes[two])
    fresh = rng.random(genes.shape)
    mutants = np.where((mutants >= 0) & (mutants < 1), mutants, fresh)
    crossed = rng.random(genes.shape) < CROSSOVER
    crossed[np.arange(size), rng.integers(length, size=size)] = True
    return np.where(crossed, mutants, genes)
