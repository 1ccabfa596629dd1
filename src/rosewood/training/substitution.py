"""Which words of the training texts may be replaced, and by which: what a run needs to know of a lexicon."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from datasets import Dataset, concatenate_datasets
from transformers import PreTrainedTokenizerBase

from rosewood.attacks.runner.api import choose_attack
from rosewood.attacks.runner.example import Resources
from rosewood.attacks.runner.job import MIN_CHANGEABLE
from rosewood.data.tasks import Task
from rosewood.errors import RunError
from rosewood.perturbations.synonym_hull import SynonymHull
from rosewood.recipe import Recipe
from rosewood.words.alignment import with_substitutes
from rosewood.words.constraints import Substituting
from rosewood.words.lexicon import Lexicon, lexicon_identity
from rosewood.words.text import Words

COUNTED = 1000
"""Texts whose words are counted to see whether the lexicon knows their language."""


def lexicon_sources(recipe: Recipe, select_by: str | None, data_dir: str | None) -> dict[str, Any]:
    """What tells apart the lexicons that a run of this recipe may read; empty if it reads none."""
    names = [hull.lexicon for hull in _hulls(recipe)]
    if select_by is not None:
        names.append(None)
    return {"training lexicon": lexicon_identity(names[0], data_dir)} if names else {}


def _hulls(recipe: Recipe) -> list[SynonymHull]:
    return [each for stage in recipe.all_stages() if isinstance(each := stage.perturbation, SynonymHull)]


@dataclass(frozen=True)
class Substitution:
    """The lexicon of a run, and the perturbation that replaces words in training, if there is one."""

    lexicon: Lexicon
    hull: SynonymHull | None = None

    @classmethod
    def of(cls, recipe: Recipe, select_by: str | None, data_dir: str | None) -> Substitution | None:
        """What a recipe, or the attack that selects the best epoch, needs; None if neither replaces words."""
        hulls = _hulls(recipe)
        hull = hulls[0] if hulls else None
        if len({(each.lexicon, each.exact_case, each.field, each.slots, each.pieces) for each in hulls}) > 1:
            raise RunError(
                f"{recipe.name}: texts are aligned with their substitutes once, for all stages: give synonym_hull the "
                "same lexicon, exact_case, field, slots and pieces in each"
            )
        attack = None if select_by is None else choose_attack(select_by)
        attack_replaces = attack is not None and "lexicon" in attack.needs()
        if hull is None and not attack_replaces:
            words = None
        else:
            words = cls(Lexicon.named(None if hull is None else hull.lexicon, data_dir), hull)
        if attack is not None:
            problems = attack.lacks(Resources(None if words is None else words.lexicon))
            if problems:
                raise RunError(f"{select_by} cannot select the best epoch: {' '.join(problems)}. pwws and typos can.")
        return words

    def aligned(
        self, encoded: Dataset, rows: Dataset, task: Task, tokenizer: PreTrainedTokenizerBase, max_length: int
    ) -> Dataset:
        """The tokenized texts with their substitutes, where the recipe replaces words."""
        if self.hull is None:
            return encoded
        texts = rows.select_columns(task.text)
        substituting = Substituting(self.lexicon, self.hull.exact_case)
        found = with_substitutes(
            concatenate_datasets([encoded, texts], axis=1),
            tokenizer,
            substituting.surface,
            task.text,
            self.hull.field,
            max_length=max_length,
            slots=self.hull.slots,
            pieces=self.hull.pieces,
        )
        self._warn_of_other_languages(substituting, texts[self.hull.field or task.text[-1]][:COUNTED])
        return found.remove_columns(task.text)

    def _warn_of_other_languages(self, substituting: Substituting, texts: Sequence[str]) -> None:
        words = [word for text in texts for word in Words.split(text).words]
        share = substituting.known(words) / max(1, len(words))
        if share < MIN_CHANGEABLE:
            warnings.warn(
                f"the lexicon {self.lexicon.name} has substitutes for only {share:.1%} of the words of the training "
                "texts, so training hardly replaces any. Are they in another language? Give a lexicon of it with "
                "--set perturbation.lexicon=FILE_OR_FOLDER",
                stacklevel=2,
            )
