"""rosewood list: what there is to choose from."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.table import Table

from rosewood.cli import app

if TYPE_CHECKING:
    from rosewood.recipe import Recipe

lists = typer.Typer(help="List recipes, attacks, lexicons, tasks, suites or models.", no_args_is_help=True)
app.add_typer(lists, name="list")


@lists.command()
def recipes() -> None:
    """The methods: their choice on the four axes, what a step costs, and where they come from.

    Cost counts passes: F a forward, X a backward to the inputs only, B a full backward. Plain fine-tuning is F+B.
    """
    from rosewood.recipe import load_recipe, recipe_names

    table = Table(title="Recipes", caption="F: forward, X: backward to the inputs, B: full backward", pad_edge=False)
    table.add_column("recipe", no_wrap=True)
    for column in ("objective", "perturbation", "selection", "anchors", "cost", "memory", "from"):
        table.add_column(column, no_wrap=column == "cost")
    for name in recipe_names():
        recipe = load_recipe(name)
        stages = recipe.all_stages()
        perturbation = recipe.perturbation.name if recipe.perturbation else "-"
        selection = ", then ".join(dict.fromkeys(stage.selection.name for stage in stages))
        anchors = ", ".join(anchor.name for anchor in recipe.anchors) or "-"
        cost, memory = str(recipe.cost()), recipe.memory() or "-"
        table.add_row(name, recipe.objective.name, perturbation, selection, anchors, cost, memory, _paper(recipe))
    Console().print(table)


def _paper(recipe: Recipe) -> str:
    """First author and year; a citation starts with the authors, or with what a combination is made of."""
    citation = recipe.citation
    if citation.startswith("Made of:"):
        return "-"
    author, year = re.match(r"\w*", citation), re.search(r"\b(19|20)\d\d\b", citation)
    return f"{author.group()} {year.group()}" if author and year else "-"


@lists.command()
def attacks() -> None:
    """The attacks, what each needs, and its settings for `rosewood attack --set`."""
    from rosewood.attacks.search.prepare import FOREIGN, choose_attack
    from rosewood.registry import component_names

    table = Table(title="Attacks", caption=f"{FOREIGN}RECIPE runs a recipe of TextAttack, where that is installed.")
    table.add_column("attack", no_wrap=True)
    for column in ("what", "needs", "settings"):
        table.add_column(column, overflow="fold")
    for name in component_names("attack"):
        attack = choose_attack(name)
        settings = ", ".join(f"{key}={json.dumps(value)}" for key, value in attack.settings().items())
        needs = ", ".join(attack.needs()).replace("_", " ") or "-"
        table.add_row(name, type(attack).__doc__, needs, settings)
    Console().print(table)


@lists.command()
def tasks() -> None:
    """The tasks, their labels, and the sets each is trained and evaluated on."""
    from rosewood.data.tasks import load_task, task_names

    table = Table(title="Tasks", show_lines=True)
    table.add_column("name", no_wrap=True)
    for column in ("what", "labels", "sets", "from"):
        table.add_column(column)
    for name in task_names():
        task = load_task(name)
        places = ("embedded", "folder", "hub")
        found = [place for place in places if any(getattr(split, place) for split in task.splits.values())]
        table.add_row(name, task.title, ", ".join(task.labels), ", ".join(task.splits), ", ".join(found))
    Console().print(table)


@lists.command()
def suites() -> None:
    """The suites for `rosewood evaluate --suite`, and the sets of each."""
    from rosewood.data.suites import load_suite, suite_names

    table = Table(title="Suites", show_lines=True)
    table.add_column("name", no_wrap=True)
    for column in ("what", "labels", "sets"):
        table.add_column(column)
    for name in suite_names():
        suite = load_suite(name)
        roles = dict.fromkeys(each.role for each in suite.sets.values())
        sets = [
            f"{role}: {', '.join(set_name for set_name, each in suite.sets.items() if each.role == role)}"
            for role in roles
        ]
        if suite.noise:
            sets.append(f"noise: {', '.join(suite.noise.kinds)}")
        table.add_row(name, suite.title, ", ".join(suite.labels) or "those of the task", "\n".join(sets))
    Console().print(table)


@lists.command()
def models() -> None:
    """Models with a short name; any folder or Hub name works too."""
    from rosewood.data.models import models as known

    table = Table(title="Models")
    for column in ("name", "title", "million parameters", "from", "note"):
        table.add_column(column)
    for name, model in known().items():
        table.add_row(name, model.title, f"{model.millions:g}", "Hub" if model.needs_hub else "demo extra", model.note)
    Console().print(table)
