"""The plan of an experiment: what it would do and how long it would take, without starting a cell."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from huggingface_hub import try_to_load_from_cache
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    DataCollatorWithPadding,
    TrainingArguments,
)
from transformers.trainer_callback import PrinterCallback
from transformers.utils.logging import disable_progress_bar

from rosewood.data.examples import tokenize
from rosewood.data.loading import load_split, needs_hub, origin
from rosewood.errors import AbsentError, RecipeError
from rosewood.experiments.cell import Cell, CellStatus, duration
from rosewood.experiments.experiment import Experiment
from rosewood.models.names import models, resolve_model
from rosewood.models.open import keep_length, load_pretrained
from rosewood.protocol import Cost
from rosewood.recipe import Recipe, load_recipe
from rosewood.training.callbacks import StepTimes
from rosewood.training.trainer import RobustTrainer


@dataclass(frozen=True)
class PlannedCells:
    """The cells of one recipe, task and model, one a seed."""

    cells: Sequence[Cell]
    finished: int
    steps: int | None
    seconds: float | None
    """The time to train one of them; None if it cannot be known here."""
    note: str
    refused: bool = False

    @property
    def left(self) -> float | None:
        """Seconds of training for all that are not finished."""
        return None if self.seconds is None else self.seconds * (len(self.cells) - self.finished)


def planned_cells(statuses: Sequence[CellStatus]) -> list[PlannedCells]:
    """One for each recipe, task and model."""
    groups: dict[tuple[str, str, str], list[CellStatus]] = {}
    for each in statuses:
        groups.setdefault((each.cell.task["name"], each.cell.model, each.cell.label), []).append(each)
    measured = _Measured()
    return [_planned(group, measured) for group in groups.values()]


def show_plan(experiment: Experiment, statuses: Sequence[CellStatus], jobs: int, console: Console) -> bool:
    """Print the plan; whether every cell can be expected to run."""
    disable_progress_bar()  # transformers' bar for loading says nothing at this size
    with (
        console.status("Checking, and measuring a few steps where model and data are here"),
        warnings.catch_warnings(action="ignore"),  # of texts that are cut, which the runs will say
    ):
        found = planned_cells(statuses)
    for model in dict.fromkeys(each.cells[0].model for each in found):
        ours = [each for each in found if each.cells[0].model == model]
        console.print(_table(f"{experiment.title or experiment.name}\nmodel: {Path(model).name}", ours))
        for note in _notes(ours):
            console.print(note, highlight=False, soft_wrap=True, markup=False)
    for line in _training_data(found):
        console.print(line, highlight=False, soft_wrap=True, markup=False)
    console.print(_summary(found, jobs), highlight=False, soft_wrap=True)
    return not any(each.refused for each in found)


def _table(title: str, found: Sequence[PlannedCells]) -> Table:
    """One row per task and recipe; numbers are never cut."""
    table = Table(title=escape(title))
    for column in ("task", "recipe", "seeds", "finished", "steps", "training"):
        is_text = column in ("task", "recipe")
        table.add_column(column, justify="left" if is_text else "right", no_wrap=not is_text)
    for each in found:
        cell = each.cells[0]
        steps = "unknown" if each.steps is None else str(each.steps)
        training = "unknown" if each.seconds is None else duration(each.seconds)
        words = map(escape, (cell.task["name"], cell.label))
        table.add_row(*words, str(len(each.cells)), str(each.finished), steps, training)
    return table


def _notes(found: Sequence[PlannedCells]) -> Iterator[str]:
    """What is to be said of the rows of a table: once for all of them, or each by its name."""
    if len({each.note for each in found}) == 1:
        yield from filter(None, [found[0].note])
    else:
        yield from (
            f"{each.cells[0].label} on {each.cells[0].task['name']}: {each.note}" for each in found if each.note
        )


def _training_data(found: Sequence[PlannedCells]) -> Iterator[str]:
    """Where the rows come from that a task trains on: the folder's are often fewer than the Hub's."""
    tasks = {each.cells[0].task["name"]: each.cells[0] for each in found}
    for name, cell in tasks.items():
        try:
            yield f"Training data of {name}: {origin(cell.built_task(), 'train', cell.data_dir)}"
        except AbsentError as error:
            yield f"Training data of {name}: {error}"


def _summary(found: Sequence[PlannedCells], jobs: int) -> str:
    cells, done = sum(len(each.cells) for each in found), sum(each.finished for each in found)
    known = [each.left for each in found if each.left is not None]
    unknown = sum(len(each.cells) - each.finished for each in found if each.left is None)
    parts = [f"{cells} cells, {done} finished."]
    if known:
        parts.append(f"Training the others with --jobs {jobs}: about {duration(sum(known) / jobs)}, if cores allow.")
    if unknown:
        parts.append(f"The time of {unknown} cells cannot be measured here.")
    return " ".join([*parts, "Evaluation and attacks come on top."])


class _Measured:
    """What is measured once for many cells."""

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}
        self._seconds: dict[str, float] = {}

    def rows(self, cell: Cell) -> int:
        key = cell.sources["train"]
        return self._rows[key] if key in self._rows else self._rows.setdefault(key, rows_of(cell))

    def seconds(self, cell: Cell) -> float:
        arguments = cell.plan().training_arguments()
        shape = [arguments.get(name) for name in ("per_device_train_batch_size", "gradient_accumulation_steps")]
        key = str([cell.sources["train"], cell.sources["model"], cell.settings.get("max_length"), shape])
        return self._seconds[key] if key in self._seconds else self._seconds.setdefault(key, seconds_per_step(cell))


def _planned(statuses: Sequence[CellStatus], measured: _Measured) -> PlannedCells:
    cells = [each.cell for each in statuses]
    first, finished = cells[0], sum(each.result is not None for each in statuses)
    unknown = why_unknown(first)
    if unknown:
        return PlannedCells(cells, finished, first.steps(), None, unknown)
    refusal = _refusal(first)
    if refusal:
        return PlannedCells(cells, finished, None, None, refusal, refused=True)
    steps = first.steps(measured.rows(first))
    seconds = None if steps is None else steps * measured.seconds(first) * relative_cost(first.built_recipe())
    return PlannedCells(cells, finished, steps, seconds, "")


def _refusal(cell: Cell) -> str:
    """Why the recipe would refuse the model, whose weights are not loaded for that."""
    config = AutoConfig.from_pretrained(resolve_model(cell.model), num_labels=len(cell.built_task().labels))
    with torch.device("meta"):
        model = AutoModelForSequenceClassification.from_config(config)
    try:
        cell.built_recipe().check_model(model)
    except RecipeError as error:
        return f"refused: {error}"
    return ""


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
    stopwatch = StepTimes()
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
