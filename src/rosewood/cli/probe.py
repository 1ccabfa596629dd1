"""rosewood probe: whether a recipe makes models generalise by grammar or by surface."""

from __future__ import annotations

import re
from pathlib import Path

import typer
from rich.console import Console

from rosewood.cli import app, examples, resumable

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
        None, envvar="ROSEWOOD_DATA", help="Folder with the tasks' files; for msgs-* that of MSGS itself."
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
    correlation with the construction tells: +1 grammar, -1 surface, 0 neither. Given again after an interruption, the
    command goes on where it stopped.
    """
    chosen = {
        "num_train_epochs": epochs,
        "learning_rate": learning_rate,
        "per_device_train_batch_size": batch_size,
    }
    numbers = seeds_of(seeds)
    from rosewood.experiments.engines.local import LocalEngine
    from rosewood.experiments.probe import TASKS
    from rosewood.experiments.probe import probe as run_probe
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
