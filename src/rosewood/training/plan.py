"""What a run is to compute: its settings, and which words of its texts may change, and to what."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from datasets import Dataset, concatenate_datasets
from pydantic import Field, InstanceOf
from transformers import PretrainedConfig, PreTrainedTokenizerBase

from rosewood.attacks.runner.api import choose_attack
from rosewood.attacks.runner.example import Resources
from rosewood.config.settings import AttackSettings, RunSettings
from rosewood.data.tasks import Task
from rosewood.errors import RunError
from rosewood.protocol import Perturbation
from rosewood.recipe import Recipe
from rosewood.words.constraints import Substituting
from rosewood.words.lexicon import Lexicon, lexicon_identity
from rosewood.words.text import Words

DEFAULTS: dict[str, Any] = {
    "num_train_epochs": 3.0,
    "per_device_train_batch_size": 32,
    "per_device_eval_batch_size": 64,
    "lr_scheduler_type": "linear",
    "train_sampling_strategy": "group_by_length",
}
LORA_RATE = 1e-3  # an adapter starts from nothing and has further to go
# The narrowest hidden size that a rate is for. docs/tuning.md has what small models were measured at.
RATES = {1024: 2e-5, 512: 5e-5, 0: 2e-4}


class Plan(RunSettings):
    """Everything that decides what a run computes."""

    recipe: InstanceOf[Recipe]
    task: Task
    arguments: dict[str, Any] = Field(default={})
    """Training arguments that win over those of the recipe."""
    trust_remote_code: str | None = None
    """The model whose own code may run; never taken from a file."""

    def training_arguments(self) -> dict[str, Any]:
        """Defaults, then what the recipe's paper says, then what the user says."""
        return DEFAULTS | self.given_arguments()

    def given_arguments(self) -> dict[str, Any]:
        """What the recipe's paper says, then what the user says."""
        return dict(self.recipe.training) | self.arguments

    @property
    def has_rate(self) -> bool:
        """Whether the recipe or the user says what the learning rate is."""
        return "learning_rate" in self.given_arguments()

    def with_rate_for(self, config: PretrainedConfig) -> Plan:
        """The plan with a learning rate: the user's, the recipe's, or else one for a model of this size."""
        if self.has_rate:
            return self
        rate = LORA_RATE if self.lora is not None else default_rate(config)
        return self.model_copy(update={"arguments": self.arguments | {"learning_rate": rate}})


def default_rate(config: PretrainedConfig) -> float:
    """The learning rate for a model of this hidden size: small models need larger steps, or they do not learn."""
    width = getattr(config.get_text_config(), "hidden_size", None) or 768  # base size where a model does not say
    return next(rate for least, rate in RATES.items() if width >= least)


COUNTED = 1000
"""Texts whose words are counted to see whether the lexicon knows their language."""


def lexicon_sources(recipe: Recipe, select_by: str | None, data_dir: str | None) -> dict[str, Any]:
    """What tells apart the lexicons that a run of this recipe may read; empty if it reads none."""
    names = _lexicons(_prepared(recipe))
    if select_by is not None:
        names.append(None)
    return {"training lexicon": lexicon_identity(names[0], data_dir)} if names else {}


def _prepared(recipe: Recipe) -> list[Perturbation]:
    """The perturbations that need training texts prepared."""
    return [each for each in recipe.perturbations() if each.preparation()]


def _lexicons(perturbations: Sequence[Perturbation]) -> list[str | None]:
    """The lexicon that each of them names which reads one."""
    return [settings["lexicon"] for each in perturbations if "lexicon" in (settings := each.preparation())]


@dataclass(frozen=True)
class WordChanges:
    """How the words of training texts change: the lexicon of a run, and the perturbations that need texts prepared."""

    lexicon: Lexicon | None
    perturbations: tuple[Perturbation, ...] = ()

    @classmethod
    def of(cls, recipe: Recipe, select_by: str | None, data_dir: str | None) -> WordChanges | None:
        """What a recipe, or the attack that selects the best epoch, needs; None if neither changes words."""
        found = _prepared(recipe)
        by_name = {each.name: each for each in found}
        for each in found:
            if each.preparation() != by_name[each.name].preparation():
                raise RunError(
                    f"{recipe.name}: texts are aligned with their substitutes once, for all stages: give {each.name} "
                    f"the same {', '.join(each.preparation())} in each"
                )
        lexicons = _lexicons(found)
        if len(set(lexicons)) > 1:
            raise RunError(f"{recipe.name}: a run has one lexicon: name the same in all perturbations")
        attack = None if select_by is None else choose_attack(select_by)
        attack_replaces = attack is not None and "lexicon" in attack.needs()
        lexicon = Lexicon.named(lexicons[0] if lexicons else None, data_dir) if lexicons or attack_replaces else None
        if attack is not None:
            problems = attack.lacks(Resources(lexicon))
            if problems:
                raise RunError(f"{select_by} cannot select the best epoch: {' '.join(problems)}. pwws and typos can.")
        return cls(lexicon, tuple(by_name.values())) if found or lexicon is not None else None

    @property
    def field(self) -> str | None:
        """Which text of a pair changes; none: the last."""
        return self.perturbations[0].preparation().get("field") if self.perturbations else None

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
        if not self.perturbations:
            return encoded
        texts = rows.select_columns(task.text)
        found = concatenate_datasets([encoded, texts], axis=1)
        for each in self.perturbations:
            found = each.prepare(found, tokenizer, task.text, max_length, self.lexicon, seed)
        if self.lexicon is not None:
            exact = any(each.preparation().get("exact_case", False) for each in self.perturbations)
            looked_at = texts[self.field or task.text[-1]][:COUNTED]
            self._warn_of_other_languages(Substituting(self.lexicon, exact), looked_at)
        return found.remove_columns(task.text)

    def _warn_of_other_languages(self, substituting: Substituting, texts: Sequence[str]) -> None:
        words = [word for text in texts for word in Words.split(text).words]
        share = substituting.known(words) / max(1, len(words))
        if share < AttackSettings().min_changeable:
            assert self.lexicon is not None
            warnings.warn(
                f"the lexicon {self.lexicon.name} has substitutes for only {share:.1%} of the words of the training "
                "texts, so training hardly replaces any. Are they in another language? Give a lexicon of it with "
                "--set perturbation.lexicon=FILE_OR_FOLDER",
                stacklevel=2,
            )
