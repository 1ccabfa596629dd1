"""rosewood list: what there is to choose from."""

from __future__ import annotations

import typer
from rich.console import Console
from rich.table import Table

from rosewood.cli import app

lists = typer.Typer(help="List recipes, tasks or models.", no_args_is_help=True)
app.add_typer(lists, name="list")


@lists.command()
def recipes() -> None:
    """The published methods and the components they choose on the four axes."""
    from rosewood.recipe import load_recipe, recipe_names

    table = Table(title="Recipes")
    for column in ("name", "objective", "perturbation", "selection", "anchors", "what it does"):
        table.add_column(column)
    for name in recipe_names():
        recipe = load_recipe(name)
        perturbation = recipe.perturbation.name if recipe.perturbation else "-"
        anchors = ", ".join(anchor.name for anchor in recipe.anchors) or "-"
        table.add_row(name, recipe.objective.name, perturbation, recipe.selection.name, anchors, recipe.summary)
    Console().print(table)


@lists.command()
def tasks() -> None:
    """The tasks, their labels, and the sets each is evaluated on."""
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
def models() -> None:
    """Models with a short name; any folder or Hub name works too."""
    from rosewood.data.models import models as known

    table = Table(title="Models")
    for column in ("name", "title", "million parameters", "from", "note"):
        table.add_column(column)
    for name, model in known().items():
        table.add_row(name, model.title, f"{model.millions:g}", "Hub" if model.needs_hub else "demo extra", model.note)
    Console().print(table)
