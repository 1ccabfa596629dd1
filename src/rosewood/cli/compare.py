"""rosewood compare: a grid of recipes, tasks, models and seeds, from one file to one table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

from rosewood.cli import app, examples, resumable
from rosewood.errors import ExperimentError, closest

if TYPE_CHECKING:
    from rosewood.experiments.engines.local import CellEngine

RAY = "Ray"


@app.command(
    epilog=examples(
        "rosewood compare experiments/reviews-small.yaml --plan",
        "rosewood compare experiments/reviews-small.yaml --jobs 2",
        "rosewood compare experiments/reviews-small.yaml --only rose-ensemble",
        "rosewood compare experiments/reviews-small.yaml --engine ray --ray-address auto --cpus 4",
        "rosewood compare experiments/reviews-small.yaml --table",
    )
)
def compare(
    file: Path = typer.Argument(help="The YAML file of an experiment."),
    output: Path | None = typer.Option(
        None, "--output", "-o", help="Where cells and tables go.", show_default="runs/NAME"
    ),
    data_dir: Path | None = typer.Option(None, envvar="ROSEWOOD_DATA", help="Folder with the tasks' files."),
    jobs: int | None = typer.Option(
        None, min=1, help="Cells at a time, each in a process of its own; they share the cores.", show_default="1"
    ),
    only: list[str] = typer.Option([], metavar="RECIPE", help="Run, and show, this recipe alone (repeatable)."),
    engine: str = typer.Option("local", help="What runs the cells: local processes, or a ray cluster."),
    trust_remote_code: list[str] = typer.Option(
        [], metavar="MODEL", help="Run the code that this model brings along (repeatable)."
    ),
    plan: bool = typer.Option(False, "--plan", help="Check everything, estimate the time, and run nothing."),
    table: bool = typer.Option(
        False, "--table", help="Show and write the tables of what is finished, and run nothing."
    ),
    ray_address: str | None = typer.Option(
        None,
        metavar="auto|local|HOST:PORT",
        help="The cluster; local starts one here and shuts it down.",
        show_default="RAY_ADDRESS, or local",
        rich_help_panel=RAY,
    ),
    cpus: int | None = typer.Option(
        None, min=1, help="CPUs, and threads, of a cell.", show_default="OMP_NUM_THREADS, or 1", rich_help_panel=RAY
    ),
    retries: int | None = typer.Option(
        None, min=0, help="How often a cell whose process dies goes on.", show_default="3", rich_help_panel=RAY
    ),
) -> None:
    """Train, evaluate and attack every combination of an experiment, and print one table.

    Given again after Ctrl-C, a crash or a change of the file, the command goes on: finished cells are skipped, cells
    whose settings have changed are run again. A cell that fails is in the table with its error, and the others go
    on; the exit code is then 1, and the same command tries it again.
    """
    from rosewood.experiments.experiment import read_experiment

    experiment = read_experiment(file).with_recipes(only)
    chosen = chosen_engine(engine, jobs, trust_remote_code, {"address": ray_address, "cpus": cpus, "retries": retries})
    console = Console()
    from rosewood.experiments.compare import output_of, run_cells, tables_of
    from rosewood.experiments.grid import cells_of
    from rosewood.experiments.status import finished_otherwise, status_of

    folder = output_of(experiment, output)
    found = [status_of(cell, folder) for cell in cells_of(experiment, data_dir)]
    if others := finished_otherwise(found):
        console.print(_of_others(others), highlight=False, markup=False, soft_wrap=True)
    if plan:
        from rosewood.experiments.plan import show_plan

        if not show_plan(experiment, found, jobs or 1, console):
            raise typer.Exit(1)
        return
    from rosewood.experiments.tables import grids_of
    from rosewood.results.grid import Folded

    if table and others and not any(each.result for each in found):
        raise ExperimentError(f"none of the {len(found)} cells of {file} is finished: no table is written.")
    if table:
        comparison = tables_of(experiment, found, folder, file)
    else:
        with resumable(console):
            comparison, found = run_cells(experiment, found, folder, chosen, console, file)
    for grid in grids_of(experiment, found):
        console.print(Folded(grid))
    for note in experiment.notes:
        console.print(f"- {note}", highlight=False, markup=False)
    finished = sum(cell.state == "finished" for cell in comparison.cells)
    console.print(f"{finished} of {len(comparison.cells)} cells are finished. Tables are in {folder}", highlight=False)
    if any(cell.state == "failed" for cell in comparison.cells):
        raise typer.Exit(1)


def _of_others(others: Sequence[Path]) -> str:
    are = "1 finished cell there has" if len(others) == 1 else f"{len(others)} finished cells there have"
    return (
        f"Looking in {others[0].parent}: {are} other settings or data than this file gives now, such as "
        f"{others[0].name}. If they should count, give the file and the --data-dir (or ROSEWOOD_DATA) that they were "
        "run with."
    )


def chosen_engine(name: str, jobs: int | None, trusted: list[str], of_ray: dict[str, Any]) -> CellEngine:
    """The engine of that name; options of another one are refused."""
    given = {option: value for option, value in of_ray.items() if value is not None}
    if name == "ray":
        from rosewood.experiments.engines.ray import RayEngine

        if jobs is not None:
            raise ExperimentError("--jobs is for local processes: on Ray, --cpus says how much room a cell takes")
        return RayEngine(**given, trusted=trusted)
    if name != "local":
        raise ExperimentError(f"unknown engine {name!r}: {closest(name, ['local', 'ray'])}")
    if given:
        raise ExperimentError("--ray-address, --cpus and --retries are Ray's: add --engine ray, or leave them out")
    from rosewood.experiments.engines.local import LocalEngine

    return LocalEngine(jobs or 1, trusted)
