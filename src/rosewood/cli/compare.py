"""rosewood compare: a grid of recipes, tasks, models and seeds, from one file to one table."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import typer
from rich.console import Console

from rosewood.cli import app

EXAMPLES = """
[bold]Examples[/]

  rosewood compare experiments/reviews-small.yaml --plan

  rosewood compare experiments/reviews-small.yaml --jobs 2

  rosewood compare experiments/reviews-small.yaml --table
"""


@app.command(epilog=EXAMPLES)
def compare(
    file: Path = typer.Argument(help="The YAML file of an experiment."),
    output: Path | None = typer.Option(
        None, "--output", "-o", help="Where cells and tables go.", show_default="runs/NAME"
    ),
    data_dir: Path | None = typer.Option(None, envvar="ROSEWOOD_DATA", help="Folder with the tasks' files."),
    jobs: int = typer.Option(1, min=1, help="Cells at a time, each in a process of its own; they share the cores."),
    plan: bool = typer.Option(False, "--plan", help="Check everything, estimate the time, and run nothing."),
    table: bool = typer.Option(
        False, "--table", help="Show and write the tables of what is finished, and run nothing."
    ),
) -> None:
    """Train, evaluate and attack every combination of an experiment, and print one table.

    Given again after Ctrl-C, a crash or a change of the file, the command goes on: finished cells are skipped, cells
    whose settings have changed are run anew. A cell that fails stands in the table with its error, and the others go
    on; the exit code is then 1, and the same command tries it again.
    """
    from rosewood.experiments.experiment import read_experiment

    experiment = read_experiment(file)
    console = Console()
    if plan:
        from rosewood.experiments.outlook import show_plan

        if not show_plan(experiment, output, data_dir, jobs, console):
            raise typer.Exit(1)
        return
    from rosewood.evaluation.layout import Folded
    from rosewood.experiments.compare import compare as run_experiment
    from rosewood.experiments.compare import output_of
    from rosewood.experiments.grid import cells_of
    from rosewood.experiments.local import LocalEngine
    from rosewood.experiments.standing import standing
    from rosewood.experiments.tables import grids_of, save_tables

    folder = output_of(experiment, output)
    if table:
        found = [standing(cell, folder) for cell in cells_of(experiment, data_dir)]
        comparison = save_tables(experiment, found, folder)
    else:
        try:
            comparison = run_experiment(experiment, folder, data_dir, LocalEngine(jobs), console)
        except KeyboardInterrupt:
            again = shlex.join(["rosewood", *sys.argv[1:]])
            console.print(f"Interrupted; what is done is kept. Go on with: {again}", highlight=False, soft_wrap=True)
            raise typer.Exit(130) from None
    for grid in grids_of(experiment, [standing(cell, folder) for cell in cells_of(experiment, data_dir)]):
        console.print(Folded(grid))
    finished = sum(cell.state == "finished" for cell in comparison.cells)
    console.print(f"{finished} of {len(comparison.cells)} cells are finished. Tables are in {folder}", highlight=False)
    if any(cell.state == "failed" for cell in comparison.cells):
        raise typer.Exit(1)
