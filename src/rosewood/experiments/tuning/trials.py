"""What a search shows and leaves behind: a live table of trials, a file of all, and the best settings as a recipe."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from rosewood.config.settings import RunSettings
from rosewood.recipe import Recipe, load_recipe
from rosewood.results import write
from rosewood.results.evaluation import GUESSING_NOTE, marked
from rosewood.results.grid import to_csv
from rosewood.results.work_folder import held
from rosewood.training.plan import Plan

if TYPE_CHECKING:
    from optuna import Study


BEST, TABLE, TASK = "best.yaml", "trials.csv", "task.yaml"
_PATIENCE = 60.0  # seconds, for what takes milliseconds


@dataclass(frozen=True)
class Tried:
    """A trial that came to its end: `state` is complete, pruned or failed."""

    number: int
    state: str
    value: float | None
    clean: float | None
    robust: float | None
    settings: Mapping[str, Any]
    error: str
    guessing: bool = False


@dataclass(frozen=True)
class Tuning:
    """All trials in the order in which their settings were drawn, and what the best one says."""

    trials: Sequence[Tried]
    best: Tried | None
    recipe: Recipe | None
    command: str


def tried(study: Study) -> list[Tried]:
    """The trials of a study that came to an end."""
    from rosewood.experiments.tuning.study import ended, error_of, place_of

    everything = study.get_trials(deepcopy=False)
    found = [
        Tried(
            number=place_of(trial.number, everything) + 1,
            state="failed" if error_of(trial) else trial.state.name.lower(),
            value=trial.value,
            clean=trial.user_attrs.get("clean"),
            robust=trial.user_attrs.get("robust"),
            settings=trial.params,
            error=error_of(trial),
            guessing=trial.user_attrs.get("guessing", False),
        )
        for trial in ended(study)
    ]
    return sorted(found, key=lambda each: each.number)


def best_of(trials: Sequence[Tried]) -> Tried | None:
    """The complete trial with the highest figure; of equal ones the first. One at guessing only if all are."""
    complete = [each for each in trials if each.state == "complete" and each.value is not None]
    return max(complete, key=lambda each: (not each.guessing, each.value, -each.number), default=None)


def save_outcome(study: Study, plan: Plan, task: str, output: Path) -> Tuning:
    """Write trials.csv and, once there is one, best.yaml."""
    with held(output, patience=_PATIENCE):  # of several workers, the last one has seen all that the others have
        trials = tried(study)
        best = best_of(trials)
        write(output / TABLE, _csv(trials))
        if best is None:
            return Tuning(trials, None, None, "")
        recipe = load_recipe(plan.recipe, best.settings)
        recipe = replace(recipe, name=f"{plan.recipe.name}-tuned")
        recipe.save(output / BEST)
    return Tuning(trials, best, recipe, command(plan, task, output))


def command(plan: Plan, task: str, output: Path) -> str:
    """The `rosewood train` that uses the best settings on all training data of the task."""
    settings = plan.only(RunSettings).words(without=["validation_size"])  # that of the search is of held-out data
    trusted = [] if plan.trust_remote_code is None else ["--trust-remote-code", plan.trust_remote_code]
    named = ["--recipe", str(output / BEST), "--task", task]
    return shlex.join(["rosewood", "train", *named, *settings, *trusted, "--output", str(output / "best")])


def _csv(trials: Sequence[Tried]) -> str:
    paths = list(dict.fromkeys(path for each in trials for path in each.settings))
    rows = [
        [
            *(each.number, each.state, each.value, each.clean, each.robust),
            *(each.settings.get(path) for path in paths),
            each.error,
        ]
        for each in trials
    ]
    return to_csv(["trial", "state", "value", "clean", "robust", *paths, "error"], rows)


COLOURS = {"complete": "green", "pruned": "yellow", "failed": "red", "running": "cyan"}
_LINES_AROUND = 10  # of the table's frame, of the training's progress, and of the terminal


class TrialBoard:
    """Shows what is in the study, also from other workers."""

    def __init__(self, study: Study, wanted: int, console: Console) -> None:
        self._study, self._wanted, self._console = study, wanted, console
        self._live: Live | None = None
        self._said: set[int] = set()

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show it as long as this lasts."""
        if not self._console.is_terminal:
            self._said = {each.number for each in tried(self._study)}
            yield
            return
        with Live(self.table(), console=self._console, auto_refresh=False, transient=True) as self._live:
            yield

    def refresh(self) -> None:
        """Something has happened."""
        if self._live is not None:
            self._live.update(self.table(), refresh=True)
            return
        trials = tried(self._study)
        for each in trials:
            if each.number not in self._said:
                self._said.add(each.number)
                self._console.print(self._line(each, best_of(trials)), markup=False, highlight=False, soft_wrap=True)

    def _line(self, each: Tried, best: Tried | None) -> str:
        end = f"; best {percent(best.value)} (trial {best.number})" if best is not None else ""
        what = each.error if each.state == "failed" else percent(each.value)
        return f"trial {each.number} of {self._wanted}: {each.state} {what}  {words(each.settings)}{end}"

    def table(self) -> Table:
        """All trials, or the last ones that fit the terminal; the best is in bold."""
        from rosewood.experiments.tuning.study import place_of, running_trials

        trials, everything = tried(self._study), self._study.get_trials(deepcopy=False)
        running = [
            Tried(
                place_of(trial.number, everything) + 1,
                "running",
                trial.intermediate_values[max(trial.intermediate_values)] if trial.intermediate_values else None,
                None,
                None,
                trial.params,
                "",
            )
            for trial in running_trials(self._study)
        ]
        return trial_table([*trials, *running], f"{len(trials)} of {self._wanted} trials", self._room())

    def _room(self) -> int:
        return max(3, self._console.height - _LINES_AROUND)


def trial_table(trials: Sequence[Tried], caption: str, room: int | None = None) -> Table:
    """A row for each trial."""
    best = best_of(trials)
    paths = list(dict.fromkeys(path for each in trials for path in each.settings))
    if any(each.guessing for each in trials):
        caption = f"{caption}. {GUESSING_NOTE}"
    table = Table(caption=caption, caption_justify="left")
    table.add_column("trial", justify="right")
    table.add_column("state")
    for column in ("value", "clean", "robust"):
        table.add_column(column, justify="right")
    for path in paths:
        table.add_column(escape(path.removeprefix("training.")), justify="right")
    for each in trials if room is None else trials[-room:]:
        figures = [percent(figure) for figure in (each.value, each.clean, each.robust)]
        figures[1] = marked(figures[1], each.guessing)
        values = [shown(each.settings.get(path)) for path in paths]
        style = "bold" if best is not None and each.number == best.number else ""
        table.add_row(
            str(each.number), f"[{COLOURS[each.state]}]{each.state}[/]", *figures, *map(escape, values), style=style
        )
    return table


def percent(value: float | None) -> str:
    """An accuracy."""
    return "" if value is None else f"{value:.1%}"


def shown(value: Any) -> str:
    """A setting, to four digits."""
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def words(settings: Any) -> str:
    """Settings in a line."""
    return " ".join(f"{path.removeprefix('training.')}={shown(value)}" for path, value in settings.items())
