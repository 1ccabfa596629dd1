"""A cell of an experiment: one recipe on one task with one model and one seed, and how far it is.

OUTPUT/LABEL-TASK-MODEL-seedN-FINGERPRINT/
  cell.json    everything that decides the figures
  run/         an ordinary run directory, with its evaluation and its attacks
  trained/     the run without its defence, if the recipe has one around the trained model
  log.txt      what the processes that worked on it printed
  error.txt    why the last of them gave up, if it did
  result.json  the figures, once there is nothing left to do
"""

from __future__ import annotations

import glob
import math
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from rosewood.config.settings import Lora
from rosewood.data.tasks import Task, build_task
from rosewood.errors import RunError
from rosewood.experiments.engines.local import LOG, Event
from rosewood.experiments.experiment import AttackChoice, EvaluationChoice, WrapChoice
from rosewood.recipe import Recipe, build_recipe, deciding
from rosewood.results import CellResult, CellState, Metrics, write
from rosewood.results.files import fingerprint_of
from rosewood.training.run import Plan

SPECIFICATION, RESULT, ERROR, RUN, TRAINED = "cell.json", "result.json", "error.txt", "run", "trained"


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
    # Left out where it is empty, so that cells that do not know it keep their fingerprint.
    wrap: WrapChoice | None = Field(default=None, exclude_if=lambda wrap: wrap is None)
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
    def training_fingerprint(self) -> str:
        """Equal for cells that train the same model, whatever is done with it then."""
        plain = self.model_dump(mode="json", include={"task", "model", "seed", "settings", "lora", "training"})
        plain["recipe"] = deciding(self.recipe)
        plain["recorded"] = self.evaluation.inconsistent_until
        later = ("evaluation", "wrap", "attack ")
        plain["sources"] = {name: value for name, value in self.sources.items() if not name.startswith(later)}
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

    def trained(self, folder: Path) -> Path:
        """Where, in the folder of the cell, its model is trained."""
        return folder / (RUN if self.wrap is None else TRAINED)

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


_LAST_LINES = 4


@dataclass(frozen=True)
class CellStatus:
    """A cell, its folder, its result if it has one, and why work on it failed if it did."""

    cell: Cell
    folder: Path
    result: CellResult | None
    error: str | None
    begun: bool

    @property
    def state(self) -> CellState:
        """What a table says of it; whether somebody works on it right now is not in the folder."""
        if self.result is not None:
            return "finished"
        if self.error is not None:
            return "failed"
        return "interrupted" if self.begun else "waiting"


def status_of(cell: Cell, output: Path) -> CellStatus:
    """Read the folder of a cell; a result of other settings is none."""
    folder = output / cell.name
    error = _error(folder) if (folder / ERROR).exists() else None
    return CellStatus(cell, folder, _result(cell, folder), error, (folder / RUN).exists())


def _result(cell: Cell, folder: Path) -> CellResult | None:
    result = _loaded(folder)
    return result if result is not None and result.fingerprint == cell.fingerprint else None


def _loaded(folder: Path) -> CellResult | None:
    try:
        return CellResult.load(folder / RESULT)
    except RunError:  # none, or a damaged one: the work is done again from what there is
        return None


def _error(folder: Path) -> str:
    lines = (folder / ERROR).read_text(encoding="utf-8").strip().splitlines()
    return "\n".join([*lines[-_LAST_LINES:], f"Log: {folder.name}/{LOG}"])


def finished_with_other_settings(found: Sequence[CellStatus]) -> list[Path]:
    """Folders of finished cells that are called like unfinished ones of these, and have other settings or data."""
    ours = {each.folder for each in found}
    alike = dict.fromkeys(
        result.parent
        for each in found
        if each.result is None
        for result in each.folder.parent.glob(f"{glob.escape(each.cell.place)}-*/{RESULT}")
    )
    return [folder for folder in alike if folder not in ours and _loaded(folder) is not None]


def status_line(found: CellStatus) -> str:
    """What a worker does with a cell at the moment, and how much of it is done."""
    run = found.folder / RUN
    if (run / "evaluation.json").exists():
        return "attacking" if found.cell.attacks else "evaluating"
    trained = found.cell.trained(found.folder)
    if (trained / "metrics.json").exists():
        return "evaluating"
    steps, expected = _steps(trained), found.cell.steps()
    if not steps:
        return "starting"
    return f"training {min(1.0, steps / expected):.0%}" if expected else f"training, step {steps}"


def accuracy(found: CellStatus) -> str:
    """On the clean set once it is known, on validation data before."""
    if found.result is not None:
        clean = next((each for each in found.result.evaluation.sets if each.role == "clean"), None)
        return "-" if clean is None else f"{clean.accuracy:.1%}"
    try:
        value = Metrics.load(found.cell.trained(found.folder) / "metrics.json").validation_accuracy
    except RunError:
        return ""
    return "" if value is None else f"{value:.1%} (validation)"


def _steps(run: Path) -> int:
    try:
        with (run / "history.jsonl").open("rb") as file:
            return sum(1 for _ in file)
    except OSError:
        return 0


COLOURS = {"finished": "green", "failed": "red", "running": "yellow", "interrupted": "yellow", "waiting": "dim"}
_LINES_AROUND = 8  # of the table's frame, and of the terminal


class LiveTable:
    """Follows the events of an engine; what the table shows, it reads from the folders."""

    def __init__(self, cells: Sequence[Cell], output: Path, console: Console) -> None:
        self._cells, self._output, self._console = cells, output, console
        self._known: dict[str, CellStatus] = {}
        self._running: dict[str, float] = {}
        self._seconds: dict[str, float] = {}

    @contextmanager
    def shown(self) -> Iterator[Callable[[Event], None]]:
        """Show the table as long as this lasts; gives what to call for every event."""
        if not self._console.is_terminal:
            yield self._follow
            return
        with Live(get_renderable=self.table, console=self._console, refresh_per_second=1):
            yield self._follow

    def _follow(self, event: Event) -> None:
        name = event.folder.name
        if event.what == "started":
            self._running[name] = time.monotonic()
            if not self._console.is_terminal:
                self._console.print(f"{name}: started", markup=False)
            return
        self._seconds[name] = time.monotonic() - self._running.pop(name)
        if not self._console.is_terminal:
            found = self._status(next(cell for cell in self._cells if cell.name == name))
            end = found.error or accuracy(found)
            self._console.print(f"{name}: {found.state}, {duration(self._seconds[name])}. {end}", markup=False)

    def _status(self, cell: Cell) -> CellStatus:
        """A finished cell is read once."""
        found = self._known.get(cell.name) or status_of(cell, self._output)
        if found.result is not None:
            self._known[cell.name] = found
        return found

    def table(self) -> Table:
        """All cells, or as many as fit the terminal, and a line that sums them up."""
        statuses = [self._status(cell) for cell in self._cells]
        states = ["running" if each.folder.name in self._running else each.state for each in statuses]
        table = Table(title=None, caption=self._summary(states), caption_justify="left")
        for column in ("recipe", "task", "model", "seed", "state", "accuracy", "time"):
            table.add_column(column, justify="right" if column in ("seed", "accuracy", "time") else "left")
        shown = _shown(states, self._console.height - _LINES_AROUND)
        for place in shown:
            found, state = statuses[place], states[place]
            cell, name = found.cell, found.folder.name
            what = status_line(found) if state == "running" else state
            since = self._running.get(name)
            seconds = time.monotonic() - since if since is not None else self._seconds.get(name)
            spent = "" if seconds is None else duration(seconds)
            words = [cell.label, cell.task["name"], Path(cell.model).name, str(cell.seed)]
            table.add_row(*map(escape, words), f"[{COLOURS[state]}]{what}[/]", accuracy(found), spent)
        if len(shown) < len(statuses):
            table.add_row(f"... and {len(statuses) - len(shown)} more", style="dim")
        return table

    def _summary(self, states: Sequence[str]) -> str:
        counts = [f"{states.count(state)} {state}" for state in COLOURS if state in states]
        left = sum(state in ("waiting", "interrupted", "running") for state in states)
        if not self._seconds or not left:
            return ", ".join(counts)
        each = sum(self._seconds.values()) / len(self._seconds) / max(1, len(self._running))
        return f"{', '.join(counts)}; about {duration(each * left)} left"


def _shown(states: Sequence[str], room: int) -> list[int]:
    """The rows that fit, in order: those worked on and those that failed before the others."""
    if len(states) <= room:
        return list(range(len(states)))
    urgency = {"running": 0, "failed": 1, "interrupted": 2, "waiting": 3, "finished": 4}
    return sorted(sorted(range(len(states)), key=lambda place: urgency[states[place]])[: max(1, room)])


def duration(seconds: float) -> str:
    """Hours, minutes and seconds."""
    return str(timedelta(seconds=round(seconds)))
