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
from rosewood.perturbations.changed_words.change import WordChange
from rosewood.perturbations.synonym_hull import SynonymHull
from rosewood.recipe import Recipe
from rosewood.words.alignment import with_substitutes
from rosewood.words.changes import with_changes
from rosewood.words.constraints import Substituting
from rosewood.words.lexicon import Lexicon, lexicon_identity
from rosewood.words.text import Words

COUNTED = 1000
"""Texts whose words are counted to see whether the lexicon knows their language."""


def lexicon_sources(recipe: Recipe, select_by: str | None, data_dir: str | None) -> dict[str, Any]:
    """What tells apart the lexicons that a run of this recipe may read; empty if it reads none."""
    names = _lexicons(recipe)
    if select_by is not None:
        names.append(None)
    return {"training lexicon": lexicon_identity(names[0], data_dir)} if names else {}


def _hulls(recipe: Recipe) -> list[SynonymHull]:
    return [each for each in recipe.perturbations() if isinstance(each, SynonymHull)]


def _changes(recipe: Recipe) -> list[WordChange]:
    return [each for each in recipe.perturbations() if isinstance(each, WordChange)]


def _lexicons(recipe: Recipe) -> list[str | None]:
    """The lexicon that each perturbation names which reads one."""
    return [each.lexicon for each in (*_hulls(recipe), *_changes(recipe)) if hasattr(each, "lexicon")]


@dataclass(frozen=True)
class Substitution:
    """How the words of training texts change: the lexicon of a run, and the perturbations that need texts prepared."""

    lexicon: Lexicon | None
    hull: SynonymHull | None = None
    changes: tuple[WordChange, ...] = ()

    @classmethod
    def of(cls, recipe: Recipe, select_by: str | None, data_dir: str | None) -> Substitution | None:
        """What a recipe, or the attack that selects the best epoch, needs; None if neither changes words."""
        hulls, changes, lexicons = _hulls(recipe), _changes(recipe), _lexicons(recipe)
        if len({(each.lexicon, each.exact_case, each.field, each.slots, each.pieces) for each in hulls}) > 1:
            raise RunError(
                f"{recipe.name}: texts are aligned with their substitutes once, for all stages: give synonym_hull the "
                "same lexicon, exact_case, field, slots and pieces in each"
            )
        if len(set(lexicons)) > 1:
            raise RunError(f"{recipe.name}: a run has one lexicon: name the same in all perturbations")
        for name in dict.fromkeys(each.name for each in changes):
            alike = [each for each in changes if each.name == name]
            if any(each.prepared() != alike[0].prepared() for each in alike):
                raise RunError(
                    f"{recipe.name}: the changes of words are prepared once, for all stages: give {name} the same "
                    f"{', '.join(alike[0].prepared())} in each"
                )
        attack = None if select_by is None else choose_attack(select_by)
        attack_replaces = attack is not None and "lexicon" in attack.needs()
        lexicon = Lexicon.named(lexicons[0] if lexicons else None, data_dir) if lexicons or attack_replaces else None
        if attack is not None:
            problems = attack.lacks(Resources(lexicon))
            if problems:
                raise RunError(f"{select_by} cannot select the best epoch: {' '.join(problems)}. pwws and typos can.")
        if lexicon is None and not changes:
            return None
        return cls(lexicon, hulls[0] if hulls else None, tuple({each.name: each for each in changes}.values()))

    @property
    def field(self) -> str | None:
        """Which text of a pair changes; none: the last."""
        return next((each.field for each in (self.hull, *self.changes) if each is not None), None)

    def aligned(
        self,
        encoded: Dataset,
        rows: Dataset,
        task: Task,
        tokenizer: PreTrainedTokenizerBase,
        max_length: int,
        seed: int = 0,
    ) -> Dataset:
        """The tokenized texts with what their words may change to, where the recipe changes any."""
        if self.hull is None and not self.changes:
            return encoded
        texts = rows.select_columns(task.text)
        found = concatenate_datasets([encoded, texts], axis=1)
        if self.hull is not None:
            assert self.lexicon is not None
            found = with_substitutes(
                found,
                tokenizer,
                Substituting(self.lexicon, self.hull.exact_case).surface,
                task.text,
                self.hull.field,
                max_length=max_length,
                slots=self.hull.slots,
                pieces=self.hull.pieces,
            )
        for change in self.changes:
            found = with_changes(
                found,
                tokenizer,
                change.name,
                change.surface(self.lexicon, seed),
                task.text,
                change.field,
                max_length=max_length,
                choices=change.most(),
                unknown=change.may_be_unknown,
            )
        if self.lexicon is not None:
            exact = any(getattr(each, "exact_case", False) for each in (self.hull, *self.changes))
            self._warn_of_other_languages(
                Substituting(self.lexicon, exact), texts[self.field or task.text[-1]][:COUNTED]
            )
        return found.remove_columns(task.text)

    def _warn_of_other_languages(self, substituting: Substituting, texts: Sequence[str]) -> None:
        words = [word for text in texts for word in Words.split(text).words]
        share = substituting.known(words) / max(1, len(words))
        if share < MIN_CHANGEABLE:
            assert self.lexicon is not None
            warnings.warn(
                f"the lexicon {self.lexicon.name} has substitutes for only {share:.1%} of the words of the training "
                "texts, so training hardly replaces any. Are they in another language? Give a lexicon of it with "
                "--set perturbation.lexicon=FILE_OR_FOLDER",
                stacklevel=2,
            )
