"""rosewood compare and probe: a grid of recipes, tasks, models and seeds, from one file or command to one table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

from rosewood.cli import app, examples, resumable
from rosewood.cli.explain import check_recipe
from rosewood.cli.options import CELL_CPUS, DATA_DIR, RAY, RAY_ADDRESS
from rosewood.errors import ExperimentError, closest

if TYPE_CHECKING:
    from rosewood.experiments.engines.local import CellEngine


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
    data_dir: Path | None = DATA_DIR,
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
    ray_address: str | None = RAY_ADDRESS,
    cpus: int | None = CELL_CPUS,
    retries: int | None = typer.Option(
        None, min=0, help="Restarts of a cell after a crash.", show_default="3", rich_help_panel=RAY
    ),
) -> None:
    """Train, evaluate and attack every combination of an experiment, and print one table.

    Run the same command again after Ctrl-C, a crash or a change of the file: finished cells are skipped, and cells
    whose settings have changed are run again. If a cell fails, the table has its error, the other cells still run, the
    exit code is 1, and the same command tries that cell again.
    """
    from rosewood.config.strict_yaml import read

    read(file, "an experiment", ExperimentError)  # a file that is not there is said before torch is imported
    from rosewood.experiments.experiment import read_experiment

    experiment = read_experiment(file).with_recipes(only)
    chosen = chosen_engine(engine, jobs, trust_remote_code, {"address": ray_address, "cpus": cpus, "retries": retries})
    console = Console()
    from rosewood.experiments.cell import finished_with_other_settings, status_of
    from rosewood.experiments.compare import output_of, run_cells, tables_of
    from rosewood.experiments.grid import cells_of

    folder = output_of(experiment, output)
    found = [status_of(cell, folder) for cell in cells_of(experiment, data_dir)]
    if others := finished_with_other_settings(found):
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


_SEEDS = re.compile(r"\d{1,9}(\.\.\d{1,9})?")
_MOST_SEEDS = 1000


def seeds_of(text: str) -> list[int]:
    """0..4 (both ends) or 0,3,7, or both: 0..2,9."""
    found: list[int] = []
    for part in text.replace(" ", "").split(","):
        if not _SEEDS.fullmatch(part):
            raise typer.BadParameter(f"expected seeds such as 0..4 or 0,3,7; got {text!r}")
        first, _, last = part.partition("..")
        if not 0 <= int(last or first) - int(first) < _MOST_SEEDS:
            raise typer.BadParameter(f"expected up to {_MOST_SEEDS} seeds, the lower one first; got {part!r}")
        found.extend(range(int(first), int(last or first) + 1))
    return found


@app.command(
    epilog=examples(
        "rosewood probe vanilla rose-ensemble --output runs/probe",
        "rosewood probe vanilla rose-first --task probe-the --seeds 0..2 --epochs 5 --jobs 2 --output runs/probe-the",
        "rosewood probe vanilla --task msgs-the --task msgs-length --data-dir MSGS --output runs/msgs",
    )
)
def probe(
    recipes: list[str] = typer.Argument(help="Recipes of `rosewood list recipes`, NAME:VARIANT, or YAML files."),
    output: Path = typer.Option(..., "--output", "-o", help="Where runs, scores and figure go."),
    task: list[str] = typer.Option(
        [], help="A probing task (repeatable): probe-*, msgs-*, or a YAML file.", show_default="probe-the, probe-length"
    ),
    seeds: str = typer.Option("0..4", help="Each recipe is run with each of them: 0..4 or 0,3,7."),
    model: str = typer.Option("minilm", help="A folder, a Hub name, or one of `rosewood list models`."),
    data_dir: Path | None = typer.Option(
        None, envvar="ROSEWOOD_DATA", help="Folder with the tasks' files; for msgs-* the MSGS folder."
    ),
    train_size: int | None = typer.Option(None, min=2, help="Train on a seeded sample of this size."),
    epochs: float | None = typer.Option(None, min=0.01, show_default="3"),
    learning_rate: float | None = typer.Option(None, min=0.0, show_default="the recipe's, or by model size"),
    batch_size: int | None = typer.Option(None, min=1, show_default="32"),
    jobs: int = typer.Option(1, min=1, help="Runs at a time, each in a process of its own; they share the cores."),
) -> None:
    """Fine-tune with each recipe where grammar and surface agree, then test where they disagree.

    Training sentences with a control construction ("hopes to") all have a surface feature (the word "the", or length)
    that those with raising ("seems to") lack. A model may learn either. On sentences where the two disagree, Matthews'
    correlation with the construction shows which: +1 grammar, -1 surface, 0 neither. Run the same command again to
    continue after an interruption.
    """
    chosen = {
        "num_train_epochs": epochs,
        "learning_rate": learning_rate,
        "per_device_train_batch_size": batch_size,
    }
    numbers = seeds_of(seeds)
    for each in recipes:
        check_recipe(each, {})
    from rosewood.experiments.compare import TASKS
    from rosewood.experiments.compare import probe as run_probe
    from rosewood.experiments.engines.local import LocalEngine
    from rosewood.lab.probing import table
    from rosewood.results.grid import Folded

    console, tasks = Console(), task or list(TASKS)
    with resumable(console):
        probing = run_probe(
            recipes,
            output,
            tasks=tasks,
            seeds=numbers,
            model=model,
            data_dir=data_dir,
            training={name: value for name, value in chosen.items() if value is not None},
            train_size=train_size,
            engine=LocalEngine(jobs),
            console=console,
        )
    console.print(Folded(table(probing)))
    runs = len(recipes) * len(tasks) * len(numbers)
    console.print(
        f"{len(probing.runs)} of {runs} runs are finished. Scores and figure are in {output}", highlight=False
    )
    if len(probing.runs) < runs:
        console.print(f"What failed, and why, is in {output / 'table.md'}", highlight=False)
        raise typer.Exit(1)
