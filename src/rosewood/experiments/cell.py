"""A cell of an experiment: one recipe on one task with one model and one seed, with how it is measured.

OUTPUT/LABEL-TASK-MODEL-seedN-FINGERPRINT/
  cell.json    everything that decides the figures
  run/         an ordinary run directory, with its evaluation and its attacks
  log.txt      what the processes that worked on it printed
  error.txt    why the last of them gave up, if it did
  result.json  the figures, once there is nothing left to do
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from rosewood.config.settings import Lora
from rosewood.data.tasks import Task, build_task
from rosewood.experiments.experiment import AttackChoice, EvaluationChoice
from rosewood.recipe import Recipe, build_recipe, deciding
from rosewood.results import write
from rosewood.results.files import fingerprint_of
from rosewood.training.run import Plan

SPECIFICATION, RESULT, ERROR, RUN = "cell.json", "result.json", "error.txt", "run"


class Cell(BaseModel):
    """Plain data, complete: a process that reads it needs nothing else."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    label: str
    recipe: dict[str, Any]
    task: dict[str, Any]
    model: str
    seed: int
    settings: dict[str, Any]
    """Those of `RunSettings` that were given."""
    lora: Lora | None
    training: dict[str, Any]
    evaluation: EvaluationChoice
    attacks: list[AttackChoice]
    data_dir: str | None
    sources: dict[str, Any]
    """Identities of model, data and lexicons; the version of the attacks' search; default learning rates, if used."""

    @property
    def fingerprint(self) -> str:
        """Equal for cells of equal figures: where the data lie is not part of it, what they hold is."""
        plain = self.model_dump(mode="json", exclude={"data_dir", "recipe", "task"})
        plain["recipe"] = deciding(self.recipe)
        plain["task"] = self.task["name"]
        return fingerprint_of(plain, ordered=False)

    @property
    def name(self) -> str:
        """A name for its folder that a person can read and no other cell has."""
        return f"{self.place}-{self.fingerprint[:8]}"

    @property
    def place(self) -> str:
        """The part of its name that other settings and data leave as it is; names of recipes and models may be cut."""
        words = (self.label, self.task["name"], Path(self.model).name, f"seed{self.seed}")
        return "-".join(re.sub(r"[^\w.+]+", "-", word).strip("-.")[:40] for word in words)

    def plan(self) -> Plan:
        """Its training run."""
        settings = dict(self.settings)
        if self.evaluation.inconsistent_until:
            settings["watch"] = list(dict.fromkeys([*settings.get("watch", []), "inconsistency"]))
            settings["watch_every"] = 1
        return Plan(
            recipe=self.built_recipe(),
            task=self.built_task(),
            model=self.model,
            data_dir=self.data_dir,
            seed=self.seed,
            lora=self.lora,
            arguments=self.training,
            **settings,
        )

    def built_recipe(self) -> Recipe:
        """The recipe with this cell's settings."""
        return build_recipe(self.recipe)

    def built_task(self) -> Task:
        """The task."""
        return build_task(self.task, f"the task of cell {self.label}")

    def steps(self, rows: int | None = None) -> int | None:
        """How many optimiser steps its training takes; None if that depends on how many rows there are."""
        arguments = self.plan().training_arguments()
        if arguments.get("max_steps", 0) > 0:
            return int(arguments["max_steps"])
        size = min((each for each in (rows, self.settings.get("train_size")) if each is not None), default=None)
        if size is None:
            return None
        batches = math.ceil(size / arguments["per_device_train_batch_size"])
        return math.ceil(
            math.ceil(batches / arguments.get("gradient_accumulation_steps", 1)) * arguments["num_train_epochs"]
        )

    def save(self, folder: Path) -> None:
        """Write it where a worker looks for it."""
        write(folder / SPECIFICATION, self.model_dump_json(indent=2, by_alias=True) + "\n")


def load_cell(folder: Path) -> Cell:
    """The cell whose folder this is."""
    return Cell.model_validate_json((folder / SPECIFICATION).read_text(encoding="utf-8"))
