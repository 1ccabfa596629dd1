"""Genetic attack (Alzantot et al., EMNLP 2018), in the form of Jia et al. (2019) that RIFT evaluates with.

An individual is a choice of substitutes. To perturb one, a random place with substitutes is drawn and the choice there,
the original word included, that lowers the fitness most is kept. A population of perturbed originals breeds for some
generations: the best individual stays, each child mixes two parents word by word and is perturbed. Substitutes are
those that a language model allows in a window of the *original* text, so that nothing drifts.

The forms of RIFT: `fitness: probability` and `parent_floor: 1e-8` on IMDB, `fitness: raw-margin` and
`parent_floor: 1e-4` on SNLI (Jia et al. 1e-6); `check_last_generation: false`; text tokenized by NLTK with
`split_at_spaces`.

Deviations from the code: by default the fitness is the margin on a scale that the model's confidence does not change
(`runner/scores.py`), because a parent's weight, 1 - p_y, is the floor alone where a model is sure of everything; a
substitute takes on the case of the word it replaces (the code's are in lower case); random numbers are seeded, one
generator an example; a text without substitutes is robust (the code fails on it); words past the model's maximum length
are not tried; success is a wrong prediction, which is the code's p_y < 0.5 for two classes; the children of the last
generation, whose scores are known, count by default. Parents are drawn with the published chances by an exponential
race rather than from cumulative sums, where the rounding noise of every weight would shift the bounds of all others.
The published language model (L2W) is not available: any model with `logp` serves, and figures depend on it.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from rosewood.attacks.runner.attack import WordSubstitution
from rosewood.attacks.runner.scores import Floats, Measure, Scores, first_lowest, highest_first
from rosewood.attacks.runner.search import Candidate, Question, Resources, Search, Target, move, trial
from rosewood.words.constraints import Constraint, Fluent

Choices = NDArray[np.int64]
NOT_ALLOWED = 1e300
"""The fitness of what constraints rule out."""


class Population(NamedTuple):
    """Individuals `(individuals, places)` as indices of choices; the lower their fitness the better."""

    choices: Choices
    fitness: Floats
    chances: Floats
    """The fitness as a share from 0 to 1."""
    near: float
    """Fitness within this is equal."""

    @property
    def best_first(self) -> Choices:
        return self.choices[highest_first(-self.fitness, self.near)]


@dataclass(frozen=True)
class Genetic(WordSubstitution):
    """Breeding of word replacements, within what a language model finds fluent."""

    examples_together = 8  # one question of one example fills batches

    population: Annotated[int, Field(ge=2)] = 60
    generations: Annotated[int, Field(ge=0)] = 40
    fitness: Literal["margin", "probability", "raw-margin"] = "margin"
    """What is lowered: the margin, the logit of the right class less the highest other one, on a scale that the model's
    confidence does not change; or, as published, p_y (IMDB) or the margin as it is (SNLI)."""
    parent_floor: Annotated[float, Field(gt=0)] = 1e-8
    """Added to each parent's weight, so that even the worst has a chance."""
    check_last_generation: bool = True
    min_log_ratio: float | None = -5.0
    """How much less likely the window may become, as a difference of log-probabilities; none: no language model."""
    window: Annotated[int, Field(ge=0)] = 6
    """Words on each side of the replaced one."""

    def measure(self) -> Measure:
        return self.fitness

    def needs(self) -> dict[str, str]:
        if self.min_log_ratio is None:
            return super().needs()
        return super().needs() | {
            "language_model": "genetic keeps to substitutes that a language model allows: pass one, such as "
            "language_model=Trigram.fit(training_texts), or set min_log_ratio to null to attack without"
        }

    def constraints(self, resources: Resources) -> Sequence[Constraint]:
        if self.min_log_ratio is None:
            return ()
        assert resources.language_model is not None
        return (Fluent(resources.language_model, self.window, self.min_log_ratio),)

    def search(self, target: Target) -> Search:
        surface = self.surface(target)
        places = np.array([at for at, found in enumerate(surface) if found], dtype=np.int64)
        if not len(places):
            return
        options = [(target.words[at], *surface[at]) for at in places]
        space = _Space(target.words, places, options)
        originals = np.zeros((self.population, len(places)), dtype=np.int64)
        now = yield from self._perturb(originals, space, target)
        for _ in range(self.generations):
            yield move(space.candidates(now.best_first))
            children = yield from self._perturb(self._cross(now, target.rng), space, target)
            best = first_lowest(now.fitness, now.near)
            now = Population(
                np.vstack([now.choices[[best]], children.choices]),
                np.append(now.fitness[best], children.fitness),
                np.append(now.chances[best], children.chances),
                children.near,
            )
        if self.check_last_generation:
            yield move(space.candidates(now.best_first))

    def _cross(self, now: Population, rng: np.random.Generator) -> Choices:
        weights = 1 - now.chances + self.parent_floor
        races = rng.exponential(size=(self.population - 1, 2, self.population))
        parents = now.choices[(races / weights).argmin(axis=2)]  # (children, 2, places)
        return np.where(rng.random(parents[:, 0].shape) < 0.5, parents[:, 0], parents[:, 1])

    def _perturb(self, choices: Choices, space: _Space, target: Target) -> Generator[Question, Scores, Population]:
        drawn = target.rng.integers(len(space.options), size=len(choices))
        counts = [len(space.options[i]) for i in drawn]
        tried = [each for words, i in zip(space.candidates(choices), drawn, strict=True) for each in space.at(words, i)]
        allowed = target.allowed(tried)
        scores = yield trial([tried[i] for i in allowed])
        # A child of two parents that are allowed need not be.
        values, chances = np.full(len(tried), NOT_ALLOWED), np.ones(len(tried))
        values[allowed], chances[allowed] = scores.values, scores.chances
        starts = np.cumsum([0, *counts[:-1]])
        best = np.array([first_lowest(part, scores.near) for part in np.split(values, starts[1:])], dtype=np.int64)
        choices[np.arange(len(choices)), drawn] = best
        kept = starts + best
        return Population(choices, values[kept], chances[kept], scores.near)


class _Space(NamedTuple):
    """All candidates: the words of a text, the places that may change, and the words that may come to each."""

    words: Candidate
    places: NDArray[np.int64]
    options: list[tuple[str, ...]]

    def candidates(self, choices: Choices) -> list[Candidate]:
        """The words of each individual."""
        made = []
        places = self.places.tolist()
        for individual in choices.tolist():
            words = list(self.words)
            for at, found, i in zip(places, self.options, individual, strict=True):
                words[at] = found[i]
            made.append(tuple(words))
        return made

    def at(self, words: Candidate, i: int) -> list[Candidate]:
        """The words with everything that may come to the i-th place."""
        at = int(self.places[i])
        before, after = words[:at], words[at + 1 :]
        return [(*before, each, *after) for each in self.options[i]]
