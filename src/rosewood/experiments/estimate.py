"""How long training will take, from a few steps of plain fine-tuning and the passes that each recipe makes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch
from huggingface_hub import try_to_load_from_cache
from transformers import DataCollatorWithPadding, TrainerCallback, TrainingArguments
from transformers.trainer_callback import PrinterCallback

from rosewood.data.loading import load_split, needs_hub
from rosewood.data.tokenize import tokenize
from rosewood.errors import AbsentError
from rosewood.experiments.cell import Cell
from rosewood.models.open import keep_length, load_pretrained, models
from rosewood.protocol import Cost
from rosewood.recipe import Recipe, load_recipe
from rosewood.training.trainer import RobustTrainer

STEPS = 4
# Seconds of a forward, of a backward to the inputs, and of a full backward, in forwards: close to what is measured.
_WEIGHTS = Cost(forward=1.0, inputs=1.0, backward=2.0)


def why_unknown(cell: Cell) -> str:
    """What is not on this machine, so that nothing can be measured; empty if all is here."""
    known = models().get(cell.model)
    local = Path(cell.model).is_dir() or (known is not None and not known.needs_hub)
    if not local and not isinstance(try_to_load_from_cache(cell.model, "config.json"), str):
        return "model on the Hub"
    try:
        return "data on the Hub" if needs_hub(cell.built_task(), "train", cell.data_dir) else ""
    except AbsentError:
        return "data not here"


def rows_of(cell: Cell) -> int:
    """How many rows its task has to train on."""
    return len(load_split(cell.built_task(), "train", cell.data_dir, multi_label=True))


def seconds_per_step(cell: Cell) -> float:
    """What an optimiser step of plain fine-tuning takes with the model, data and settings of a cell."""
    plan = cell.plan()
    arguments = plan.training_arguments()
    batch = arguments["per_device_train_batch_size"] * arguments.get("gradient_accumulation_steps", 1)
    model, tokenizer = load_pretrained(plan.model, plan.task, plan.seed, lora=plan.lora)
    keep_length(model, tokenizer, plan.max_length)
    rows = load_split(plan.task, "train", plan.data_dir, STEPS * batch, multi_label=True)
    stopwatch = _Stopwatch()
    with TemporaryDirectory() as folder:
        trainer = RobustTrainer(
            model=model,
            args=_arguments(arguments, folder),
            recipe=load_recipe("vanilla"),
            train_dataset=tokenize(rows, plan.task, tokenizer, plan.max_length),
            processing_class=tokenizer,
            data_collator=DataCollatorWithPadding(tokenizer),
            callbacks=[stopwatch],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return stopwatch.seconds()


def relative_cost(recipe: Recipe) -> float:
    """How many times as long as plain fine-tuning a step takes, by its passes."""
    return _weighed(recipe.cost()) / _weighed(load_recipe("vanilla").cost())


def _weighed(cost: Cost) -> float:
    return sum(count * weight for count, weight in zip(cost, _WEIGHTS, strict=True))


def _arguments(chosen: Mapping[str, Any], folder: str) -> TrainingArguments:
    names = ("per_device_train_batch_size", "gradient_accumulation_steps", "bf16", "fp16", "gradient_checkpointing")
    kept = {name: chosen[name] for name in names if name in chosen}
    return TrainingArguments(
        output_dir=folder,
        max_steps=STEPS,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=not torch.accelerator.is_available(),
        dataloader_pin_memory=torch.cuda.is_available(),
        **kept,
    )


class _Stopwatch(TrainerCallback):
    """The time between the ends of steps; the first, which warms everything up, is left out."""

    def __init__(self) -> None:
        self._ends: list[float] = []

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self._ends.append(time.monotonic())

    def seconds(self) -> float:
        pairs = zip(self._ends, self._ends[1:], strict=False)
        return median(end - begin for begin, end in pairs)
