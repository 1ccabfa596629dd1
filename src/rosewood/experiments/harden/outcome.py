"""What a hardening leaves: the winner as a run, a page, a card, and the commands that make the winner again."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import yaml

from rosewood.comparison.runs import load_runs
from rosewood.config.settings import RunSettings
from rosewood.experiments.harden.board import changes_grid, tried_grid
from rosewood.experiments.harden.candidates import START, behind
from rosewood.experiments.harden.race import Race
from rosewood.experiments.harden.rows import FOLDER, TASK, whole_task
from rosewood.experiments.harden.stage import Work, weights_of
from rosewood.experiments.harden.verdict import AFTER, BEFORE, TEST
from rosewood.report.figures.lab import hardening
from rosewood.report.figures.style import save
from rosewood.report.hub import model_card
from rosewood.report.page import write_report
from rosewood.report.parts import Chart, Charts, Listing, Section, Table
from rosewood.report.subject import subject_of
from rosewood.results import Hardening, RunInfo, write
from rosewood.results.files import staged
from rosewood.results.grid import to_markdown

PAGE, CARD, FIGURE = "report.html", "README.md", "trade-off.html"
_OF_RUNS = ("run.json", "recipe.yaml", "average.json", "metrics.json", "history.jsonl")


def export(race: Race) -> None:
    """Write everything that is for the user; what is there already is written again, to the same end."""
    state, output = race.state, race.output
    if state.winner not in (None, START):
        race.state = state = state.model_copy(update={"reproduce": commands(race, str(state.winner))})
    if state.winner is not None and state.outcome == "hardened":
        _as_run(race, state.winner)
    folders = [output / TEST / name for name in (BEFORE, AFTER) if (output / TEST / name).exists()]
    about = subject_of(load_runs(folders), BEFORE if len(folders) > 1 else None, title=f"Hardening on {state.task}")
    write_report([about], output / PAGE, notes=[state.sentence], closing=[_section(state)])
    save(hardening(state), output / FIGURE)
    if state.outcome == "hardened":
        write(output / CARD, _card(output, state))


def commands(race: Race, candidate: str) -> str:
    """What makes a candidate again, a command a line: its training, and what is then made of it."""
    work = race.work_of(candidate)
    parts = [] if work.kind == "trained" else [name for name in work.made_of if name != START]
    trained = [work] if work.kind == "trained" else [race.work_of(behind(race.shield, name)) for name in parts]
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


def _section(state: Hardening) -> Section:
    """What was tried on held-out rows, and how the winner is made."""
    chart = Chart(hardening(state), "Each candidate's clean and robust accuracy on held-out rows, with 95 % intervals.")
    parts = [Charts([chart]), Table(tried_grid(state))]
    if state.changes:
        parts.insert(0, Table(changes_grid(state)))
    if state.reproduce:
        parts.append(Listing(f"How {state.winner} is made", state.reproduce, folded=False))
    return Section(
        "What was tried", parts, "Rows that were held out from training chose; test rows were read once, at the end."
    )


def _card(output: Path, state: Hardening) -> str:
    """The card of the run, and how it was found."""
    tables = "\n\n".join(to_markdown(grid) for grid in (changes_grid(state), tried_grid(state)))
    found = f"## How it was hardened\n\n{state.sentence}\n\n{tables}\n\n```\n{state.reproduce}\n```\n"
    return f"{str(model_card(output)).rstrip()}\n\n{found}"
