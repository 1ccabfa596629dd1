"""Worst case over several attacks: an example counts as robust only if none of them breaks it.

The attacks of the list run one after the other on each example, and those that come later see only what the others
left. They are ordered by what they cost on an example that they do not break, nearly: there `pwws` asks for one text
more than `textfooler` for each word that it replaces, but which of the two is first changes no verdict. Each draws the
random numbers that it would draw alone. `max_queries` is for all of them together, and no text is scored twice; where
it does not pay for slopes any more, the next attack has the rest. Results say which attack broke each example, and so
what each one added.

The lists, by threat: `words` has four searches through the same substitutes, all that the lexicon has for a word, so
that what one search misses another may find. `characters` has misspelt words, in a fifth of the words at most, and
edits that a reader does not see. `all` has both. On a model without gradients, such as one with a defence around it,
those that need them are left out, and results say so: `white_box` is then false in their settings. `attacks` names
other attacks, with their default settings.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from torch import nn

from rosewood.attacks.genetic import Genetic
from rosewood.attacks.gradient import Gradient, has_gradients
from rosewood.attacks.imperceptible import Imperceptible
from rosewood.attacks.pwws import Pwws
from rosewood.attacks.runner.attack import Attack
from rosewood.attacks.runner.search import OutOfQueriesError, Resources, Search, Target, probe
from rosewood.attacks.textbugger import TextBugger
from rosewood.attacks.textfooler import TextFooler
from rosewood.attacks.typos import Typos
from rosewood.recipe import build_component

WORDS: dict[str, Attack] = {
    "gradient": Gradient(),
    "pwws": Pwws(),
    "textfooler": TextFooler(min_similarity=None, skip_stop_words=False),
    "genetic": Genetic(population=20, generations=10, min_log_ratio=None),
}
CHARACTERS: dict[str, Attack] = {
    "gradient on letters": Gradient(edits="characters", max_words_share=0.2),
    "typos": Typos(),
    "textbugger": TextBugger(neighbours=0),
    "imperceptible": Imperceptible(),
}
THREATS = {"words": WORDS, "characters": CHARACTERS, "all": WORDS | CHARACTERS}


@dataclass(frozen=True)
class Worst(Attack):
    """Several attacks in turn; the first that breaks an example ends it."""

    opens = True
    examples_together = Genetic.examples_together

    threat: Literal["words", "characters", "all"] = "words"
    """What may change, if no attacks are named."""
    attacks: str | None = None
    """Names of attacks with commas, in their order, in place of those of the threat."""
    white_box: bool = True
    """Whether attacks that need gradients are among those of the threat; never where the model has no gradients."""

    def settings(self) -> dict[str, Any]:
        """Without what is as it was before there was the setting: results of older versions stay comparable."""
        found = super().settings()
        return {name: value for name, value in found.items() if name != "white_box" or value is not True}

    @cached_property
    def members(self) -> dict[str, Attack]:
        """The attacks by name, in their order."""
        if self.attacks is None:
            listed = THREATS[self.threat]
            return {name: each for name, each in listed.items() if self.white_box or not isinstance(each, Gradient)}
        found: dict[str, Attack] = {}
        for name in (each.strip() for each in self.attacks.split(",")):
            chosen = build_component("attack", name.replace("-", "_"))
            assert isinstance(chosen, Attack)
            found[name] = chosen
        return found

    def needs(self) -> dict[str, str]:
        return {name: why for each in self.members.values() for name, why in each.needs().items()}

    def suited_to(self, model: nn.Module) -> Attack:
        return self if self.attacks is not None or has_gradients(model) else replace(self, white_box=False)

    def problems_with(self, model: nn.Module) -> list[str]:
        return [problem for each in self.members.values() for problem in each.problems_with(model)]

    def changeable(self, words: Sequence[str], resources: Resources) -> int | None:
        counts = [each.changeable(words, resources) for each in self.members.values()]
        return max((count for count in counts if count is not None), default=None)

    def search(self, target: Target) -> Search:
        known = False
        for name, attack in self.members.items():
            if not known and not attack.opens:
                target, known = replace(target, clean=(yield probe([target.words]))), True
            search = attack.search(replace(target, rng=deepcopy(target.rng)))
            question = next(search, None)
            while question is not None:
                try:
                    scores = yield question._replace(asker=name)
                except OutOfQueriesError:  # what is left may do for an attack that asks for no slopes
                    break
                if not known:
                    target, known = replace(target, clean=scores), True
                try:
                    question = search.send(scores)
                except StopIteration:
                    question = None
