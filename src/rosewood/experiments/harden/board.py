"""What a hardening shows, and what it leaves behind.

On a terminal that is a live table, elsewhere a line for each event, and at the end tables of what was tried and what
has changed. In its folder it is the winner as a run, its card, and a page.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rosewood.attacks.runner.report import diff
from rosewood.comparison.runs import load_runs
from rosewood.config.settings import RunSettings
from rosewood.experiments.cell import duration
from rosewood.experiments.harden.before_and_after import AFTER, BEFORE, TEST, saved_examples
from rosewood.experiments.harden.candidates import behind, defence_of
from rosewood.experiments.harden.race import Race
from rosewood.experiments.harden.schedule import Stopwatch
from rosewood.experiments.harden.stage import FOLDER, TASK, Work, weights_of, whole_task
from rosewood.report.figures.lab import hardening
from rosewood.report.figures.style import save
from rosewood.report.hub import card_of, write_card
from rosewood.report.page import write_report
from rosewood.report.sections.hardening import (
    READ_ONCE,
    figures_of,
    hardening_section,
    sides_of,
    stage_of,
    tried_grid,
)
from rosewood.report.subject import subject_of
from rosewood.results import START, Change, Hardening, RunInfo, write
from rosewood.results.files import staged
from rosewood.results.grid import Folded

SHOWN_TEXTS = 3


class Board:
    """Follows a race; time is read whenever the table is drawn."""

    def __init__(self, console: Console, output: Path, watch: Stopwatch) -> None:
        self._console, self._output, self._watch = console, output, watch
        self._state: Hardening | None = None
        self._now = ""

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show it as long as this lasts."""
        if not self._console.is_terminal:
            yield
            return
        with Live(get_renderable=self.table, console=self._console, refresh_per_second=1, transient=True):
            yield

    def news(self, state: Hardening, said: str) -> None:
        """Something has happened, or is about to."""
        self._state = state
        if said:
            self._now = said
            if not self._console.is_terminal:
                spent = duration(self._watch.spent(self._output))
                self._console.print(f"{spent} {said}", markup=False, highlight=False, soft_wrap=True)

    def table(self) -> Group | Text:
        """All candidates as they were measured last, and what is being done."""
        if self._state is None:
            return Text("")
        spent, budget = self._watch.spent(self._output), self._state.budget
        time = f"{duration(budget - spent)} left of {duration(budget)}" if spent < budget else "the budget is spent"
        if self._state.schedule is not None and self._state.costs is None:  # a race that is run whatever it takes
            time = duration(spent)
        return Group(tried_table(self._state), Text(f"{self._now}\n{time}", style="dim"))


def tried_table(state: Hardening) -> Table:
    """A row for each candidate; who is out of the race is dim."""
    table = Table(title=f"{state.task}: robust is right under {' and '.join(state.threats)}", title_justify="left")
    table.add_column("candidate")
    table.add_column("stage")
    for column in ("clean", "robust", "cost"):
        table.add_column(column, justify="right")
    out = {name for each in state.decisions for name in each.entered if name not in each.kept}
    for each in state.tried:
        style = "bold" if each.candidate == state.winner else "dim" if each.candidate in out else ""
        table.add_row(escape(each.candidate), stage_of(each), *figures_of(each), style=style)
    tried = {each.candidate.removeprefix(behind(defence_of(each.candidate), "")) for each in state.tried}
    for name in state.schedule.entrants if state.schedule else []:
        if name not in tried:
            table.add_row(escape(name), "waiting", "", "", "", style="dim")
    return table


def changes_table(state: Hardening) -> Table:
    """Before and after on test rows, for 80 columns: threats first, and in colour what has changed beyond noise."""
    title = f"On test rows; before: your model, after: {escape(str(state.winner))}"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    for column in ("rows", "before", "after", "change"):
        table.add_column(column, justify="right")
    for role in ("threat", "lexicon", "clean", "noise", "calibration"):
        for each in (change for change in state.changes if change.role == role):
            before, after = sides_of(each)
            change = f"{100 * each.difference:+.1f}"
            if each.interval is not None:
                change += " ({:+d} to {:+d})".format(*(round(100 * end) for end in each.interval))
            coloured = (Text(cell, style=_colour(each)) for cell in (after, change))
            table.add_row(each.what, str(each.examples), before, *coloured)
        table.add_section()
    return table


def _colour(each: Change) -> str:
    if each.interval is None or each.interval[0] <= 0 <= each.interval[1]:
        return ""
    return "bold green" if each.difference > 0 else "bold red"


def show_end(state: Hardening, output: Path, console: Console) -> None:
    """The tables, some texts that hold now, and what to do next."""
    console.print(Folded(tried_grid(state)))
    console.print()
    if state.changes:
        console.print(changes_table(state))
        console.print(f"In %, with 95 % intervals. {READ_ONCE}", style="dim italic", highlight=False)
        console.print()
    if state.outcome == "hardened":
        labels = whole_task(output).labels
        texts = saved_examples(output / TEST / BEFORE, output / TEST / AFTER, state.threats, SHOWN_TEXTS)
        if texts:
            console.print("Texts that broke your model, and do not break this one:", highlight=False)
        for text in texts:
            console.print(Padding(diff(text, labels), (0, 0, 1, 2)))
    console.print(state.sentence, style="bold", markup=False, highlight=False)
    of_budget = "" if state.costs is None else f" of {duration(state.budget)}"
    console.print(f"{duration(state.spent)}{of_budget}.", highlight=False)
    if state.outcome == "hardened":
        where = f"The model is in {output}/model, its card in {card_of(output)}\nTo make it again:\n{state.reproduce}"
        console.print(where, highlight=False, markup=False, soft_wrap=True)  # paths and commands are for copying
    console.print(f"Everything that was measured: {output}/report.html", highlight=False, markup=False, soft_wrap=True)


PAGE, FIGURE = "report.html", "trade-off.html"
_OF_RUNS = ("run.json", "recipe.yaml", "average.json", "metrics.json", "history.jsonl")


def export(race: Race, hardened: bool) -> None:
    """Write everything that is for the user; what is there already is written again, to the same end."""
    state, output = race.state, race.output
    if hardened:
        _as_run(race, str(state.winner))
    folders = [output / TEST / name for name in (BEFORE, AFTER) if (output / TEST / name).exists()]
    about = subject_of(load_runs(folders), BEFORE if len(folders) > 1 else None, title=f"Hardening on {state.task}")
    write_report([about], output / PAGE, notes=[state.sentence], closing=[hardening_section(state)])
    save(hardening(state), output / FIGURE)
    if hardened:
        write_card(output, card_of(output))


def commands(race: Race, candidate: str) -> str:
    """What makes a candidate again, a command a line: its training, and what is then made of it."""
    work = race.work_of(candidate)
    parts = [] if work.kind == "trained" else [name for name in work.made_of if name != START]
    trained = [work] if work.kind == "trained" else [race.work_of(race.shielded(name)) for name in parts]
    places = {each.candidate: _again(race.entrant(each.candidate).name) for each in trained}
    lines = [_train(race, each, places[each.candidate]) for each in trained]
    inside, task = [*places.values(), race.base.model][0], []
    if work.kind == "mixture":
        mixed = [race.base.model if name == START else _again(name) for name in work.made_of]
        weights = [word for share in work.parts.values() for word in ("--weight", f"{share:g}")]
        inside = _again("mixed")
        lines.append(_joined("average", *mixed, *weights, "--pretrained", work.pretrained, "--output", inside))
    elif not trained:
        task = ["--task", str(race.output / FOLDER / TASK)]
    if work.defence:
        given = [] if work.lexicon is None else ["--lexicon", work.lexicon]
        given += [] if work.data_dir is None else ["--data-dir", work.data_dir]
        lines.append(_joined("wrap", inside, "--with", work.defence, *task, *given, "--output", _again("wrapped")))
    return "\n".join(lines)


def _train(race: Race, work: Work, place: str) -> str:
    entrant = race.entrant(work.candidate)
    named = ["--recipe", entrant.source, "--task", str(race.output / FOLDER / TASK)]
    settings = work.plan().only(RunSettings).words()
    given = [*entrant.overrides, *(f"training.{name}={json.dumps(value)}" for name, value in work.arguments.items())]
    arguments = [word for each in given for word in ("--set", each)]
    return _joined("train", *named, *settings, *arguments, "--output", place)


def _again(candidate: str) -> str:
    """A folder for what is made again."""
    return f"{re.sub(r'[^A-Za-z0-9.+]+', '-', candidate).strip('-')}-again"


def _joined(*words: str) -> str:
    return shlex.join(["rosewood", *words])


def _as_run(race: Race, winner: str) -> None:
    """The winner's model, and its test results, where any command that takes a run looks for them."""
    output, source = race.output, race.run_of(winner)
    with staged(output / "model") as new:
        shutil.copytree(weights_of(source), new, dirs_exist_ok=True)
    for name in _OF_RUNS:
        if (source / name).exists():
            shutil.copy(source / name, output / name)
    if not (output / "run.json").exists():
        _of_elsewhere(race, winner).save(output / "run.json")
    task = whole_task(output).model_dump(mode="json", by_alias=True, exclude_defaults=True)
    write(output / "task.yaml", yaml.safe_dump(task, sort_keys=False, allow_unicode=True))
    for found in (output / TEST / AFTER).iterdir():
        if found.is_dir():
            shutil.copytree(found, output / found.name, dirs_exist_ok=True)
        elif found.name != ".lock":
            shutil.copy(found, output / found.name)


def _of_elsewhere(race: Race, winner: str) -> RunInfo:
    """What is known of the user's own model with a defence around it: nobody has trained it here."""
    work = race.work_of(winner)
    return RunInfo(
        recipe=work.defence,
        task=race.state.task,
        model=race.base.model,
        fingerprints={},
        max_length=work.max_length,
        data_dir=work.data_dir,
        seed=work.seed,
        training_arguments={},
        command="",
        status="finished",
    )
