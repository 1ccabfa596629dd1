"""What a run is to compute."""

from __future__ import annotations

from typing import Any

from pydantic import Field, InstanceOf
from transformers import PretrainedConfig

from rosewood.config.settings import RunSettings
from rosewood.data.tasks import Task
from rosewood.recipe import Recipe

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
