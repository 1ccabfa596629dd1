"""What an attack is: settings, what it needs, and a search. The runner does the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from rosewood.attacks.runner.scores import Measure
from rosewood.protocol import Component
from rosewood.words.text import WORD

if TYPE_CHECKING:
    from rosewood.attacks.runner.example import Resources, Search, Target


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

    def changeable(self, words: Sequence[str], resources: Resources) -> int | None:
        """How many of the words of a text the attack could change at all; None if it cannot say."""
        return None

    def search(self, target: Target) -> Search:
        """Ask for the scores of candidates, one question after the other, until out of ideas."""
        raise NotImplementedError
