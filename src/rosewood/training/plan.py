"""What a run is to compute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rosewood.data.tasks import Task
from rosewood.recipe import Recipe
from rosewood.results import Lora
from rosewood.training.class_weights import ClassWeights

DEFAULTS: dict[str, Any] = {
    "learning_rate": 5e-5,
    "num_train_epochs": 3.0,
    "per_device_train_batch_size": 32,
    "per_device_eval_batch_size": 64,
    "lr_scheduler_type": "linear",
    "train_sampling_strategy": "group_by_length",
}
LORA_DEFAULTS: dict[str, Any] = {"learning_rate": 1e-3}  # an adapter starts from nothing and has further to go


@dataclass(frozen=True)
class Plan:
    """Everything that decides what a run computes."""

    recipe: Recipe
    task: Task
    model: str = "minilm"
    labels: Sequence[str] | None = None  # names of the checkpoint's outputs in their order; None: those in its config
    new_head: bool = False  # also where the checkpoint has a trained one
    pretrained: str | None = None  # what anchors tie the encoder to; None: what the checkpoint names, or itself
    data_dir: str | None = None
    train_size: int | None = None
    validation_size: int = 1000
    max_length: int = 128
    seed: int = 0
    early_stopping: int | None = None
    select_by: str | None = None
    select_examples: int = 100
    max_skipped_steps: int = 10
    watch: Sequence[str] = ()
    watch_every: int = 10
    lora: Lora | None = None
    class_weights: ClassWeights | None = None
    arguments: dict[str, Any] = field(default_factory=dict)
    trust_remote_code: str | None = None  # the model whose own code may run; never taken from a file

    def training_arguments(self) -> dict[str, Any]:
        """Defaults, then what the recipe's paper says, then what the user says."""
        defaults = DEFAULTS if self.lora is None else DEFAULTS | LORA_DEFAULTS
        return defaults | self.given_arguments()

    def given_arguments(self) -> dict[str, Any]:
        """What the recipe's paper says, then what the user says."""
        return dict(self.recipe.training) | self.arguments
