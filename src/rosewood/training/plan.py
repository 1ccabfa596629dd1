"""What a run is to compute: its settings, the model that it starts from, and how the words of its texts change.

Of the model that is what its outputs mean; `models/origin.py` knows which pre-trained model anchors tie it to.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from datasets import ClassLabel, Dataset, concatenate_datasets
from pydantic import Field, InstanceOf
from torch import nn
from transformers import PretrainedConfig, PreTrainedTokenizerBase

from rosewood.attacks.runner.api import choose_attack
from rosewood.attacks.runner.search import Resources
from rosewood.config.settings import AttackSettings, RunSettings
from rosewood.data.tasks import Task
from rosewood.errors import RunError
from rosewood.models.names import Outline
from rosewood.models.scoring import matching_columns, output_names, unnamed
from rosewood.protocol import Perturbation
from rosewood.recipe import Recipe
from rosewood.words.alignment import changed_field
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
        found = concatenate_datasets([encoded, rows.select_columns(task.text)], axis=1)
        return self.prepared(found, task.text, tokenizer, max_length, seed).remove_columns(task.text)

    def prepared(
        self, data: Dataset, fields: list[str], tokenizer: PreTrainedTokenizerBase, max_length: int, seed: int
    ) -> Dataset:
        """Tokenized data that still have their texts, in `fields`, with what their words may change to."""
        found = data
        for each in self.perturbations:
            found = each.prepare(found, tokenizer, fields, max_length, self.lexicon, seed)
        if self.lexicon is not None:
            exact = any(each.preparation().get("exact_case", False) for each in self.perturbations)
            looked_at = data[self.field or fields[-1]][:COUNTED]
            self._warn_of_other_languages(Substituting(self.lexicon, exact), looked_at)
        return found

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


def with_words_prepared(
    data: Dataset, recipe: Recipe, tokenizer: PreTrainedTokenizerBase | None, fields: Sequence[str], seed: int
) -> Dataset:
    """Tokenized data that still have their texts, in `fields`, with all that the recipe reads to change words."""
    words = WordChanges.of(recipe, None, None)
    if words is None:
        return data
    if tokenizer is None:
        raise RunError(f"recipe {recipe.name} changes words: give their tokenizer, too (processing_class=tokenizer)")
    changed_field(data, tokenizer, fields, words.field)
    # Cut at the longest text, every text has the tokens that it was given, wherever that cut was.
    longest = max((len(ids) for ids in data["input_ids"]), default=1)
    return words.prepared(data, list(fields), tokenizer, longest, seed)


def in_order_of_outputs(plan: Plan, start: Outline) -> Plan:
    """The plan with the labels of its task in the order of the checkpoint's outputs, if it has a trained head.

    A model without one gets a new head, whose outputs have the order of the task.
    """
    if plan.labels is not None and plan.new_head:
        raise RunError("--labels names the outputs that the model has, and --new-head replaces them: leave one out")
    if plan.labels is not None and not start.has_head:
        raise RunError(
            f"--labels names the outputs of a fine-tuned classifier, and {plan.model} has no classification head: "
            "it gets a new one, so leave --labels out"
        )
    if plan.new_head or not start.has_head:
        return plan
    names = _names(plan, start.config)
    columns = matching_columns(names, plan.task.labels)
    if columns is None:
        raise _other_labels(plan, start.config)
    ordered = sorted(plan.task.labels, key=lambda label: columns[plan.task.labels.index(label)])
    if plan.task.multi_label and ordered != plan.task.labels:
        # A vector of 0 and 1 has no names: its places are those of the task's labels, whatever the model's order is.
        raise RunError(
            f"the outputs of {plan.model} are {', '.join(ordered)}, and the labels of the task are "
            f"{', '.join(plan.task.labels)}: with several labels per text both must have one order. Write the labels "
            "in a task file in the order of the outputs, or take a new head: --new-head"
        )
    return plan.model_copy(update={"task": plan.task.model_copy(update={"labels": ordered})})


def warn_of_other_labels(model: nn.Module, data: Any) -> None:
    """Say so where the names of a model's outputs and those of the data's labels disagree, or their order."""
    config, features = getattr(model, "config", None), getattr(data, "features", None) or {}
    feature = features.get("labels") or features.get("label")
    feature = getattr(feature, "feature", feature)  # where each token has a label
    if not isinstance(feature, ClassLabel) or not isinstance(config, PretrainedConfig):
        return
    names, labels = output_names(config), feature.names
    if len(names) == len(labels) and (unnamed(config) or matching_columns(names, labels) == list(range(len(names)))):
        return
    warnings.warn(
        f"the model's outputs are {', '.join(names)} (id2label), the labels of the data are {', '.join(labels)}: "
        "training takes label 0 for output 0, and so on. Give the data the model's order "
        "(dataset.align_labels_with_mapping(model.config.label2id, column)), or the model a new head",
        stacklevel=3,
    )


def _names(plan: Plan, config: PretrainedConfig) -> list[str]:
    if plan.labels is None:
        found = output_names(config)
        numbers = [str(number) for number in range(len(found))]
        # Labels that are the numbers 0, 1, ... mean the outputs of these numbers.
        return numbers if unnamed(config) and sorted(plan.task.labels) == sorted(numbers) else found
    if len(plan.labels) != config.num_labels:
        raise RunError(
            f"--labels: expected {config.num_labels} names, one for each output of {plan.model}, got "
            f"{len(plan.labels)}: {', '.join(plan.labels)}"
        )
    if matching_columns(plan.labels, plan.task.labels) is None:
        raise RunError(
            f"--labels names {', '.join(plan.labels)}, and the data has the labels {', '.join(plan.task.labels)}: "
            "expected the same names, in the order of the model's outputs"
        )
    return list(plan.labels)


def _other_labels(plan: Plan, config: PretrainedConfig) -> RunError:
    labels, names = plan.task.labels, output_names(config)
    found = (
        f"{plan.model} is a fine-tuned classifier with {config.num_labels} outputs ({', '.join(names)}), and the data "
        f"has {len(labels)} labels ({', '.join(labels)})"
    )
    new_head = "start with a new head: --new-head"
    if config.num_labels != len(labels):
        return RunError(f"{found}. Give data with the labels of the model, or {new_head}")
    return RunError(
        f"{found}. Say which output is which: --labels {','.join(labels)} (in the order of the outputs); or {new_head}"
    )
