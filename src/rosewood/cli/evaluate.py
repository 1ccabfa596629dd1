"""rosewood evaluate: how right a model stays on clean, shifted, adversarial and noisy text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from rosewood.cli import app
from rosewood.errors import RunError

if TYPE_CHECKING:
    from rosewood.data.tasks import Task
    from rosewood.results import Evaluation

EXAMPLES = """
[bold]Examples[/]

  rosewood evaluate runs/vanilla runs/rose

  rosewood evaluate ./my-checkpoint --task sst2 --data-dir $ROSEWOOD_DATA
"""


@app.command(epilog=EXAMPLES)
def evaluate(
    runs: list[str] = typer.Argument(help="Run directories, checkpoint folders or Hub names."),
    task: str | None = typer.Option(None, help="A task or its YAML file.", show_default="the run's"),
    data_dir: Path | None = typer.Option(
        None, envvar="ROSEWOOD_DATA", help="Folder with the tasks' files.", show_default="the run's"
    ),
    size: int | None = typer.Option(None, min=2, help="At most this many examples of each set."),
    batch_size: int = typer.Option(64, min=1),
    typo_rate: float = typer.Option(0.3, min=0.0, max=1.0, help="Share of the words that get a typo."),
    seed: int = typer.Option(0, min=0, help="Seed of the sample and of the typos."),
    trust_remote_code: list[str] = typer.Option(
        [],
        metavar="RUN",
        help="Run the code that this run or checkpoint brings along (repeatable).",
        show_default=False,
    ),
) -> None:
    """Evaluate runs, or any classification checkpoints, and print one table.

    For a run of ours the result is also written to RUN/evaluation.json.
    """
    from rosewood.evaluation.table import render

    for run in runs:  # all of them before the first, which may take minutes
        check_run(run, task)
    evaluations = {}
    for run in runs:
        trusted = bool({run, str(Path(run) / "model")}.intersection(trust_remote_code))
        evaluations[run] = evaluate_one(run, task, data_dir, size, batch_size, typo_rate, seed, trusted)
    console = Console()
    console.print(render(evaluations))
    for evaluation in evaluations.values():
        for missing in evaluation.missing:
            console.print(f"[yellow]missing[/] {missing.name}: {missing.reason}", highlight=False)


def evaluate_one(
    run: str,
    task: str | None,
    data_dir: Path | None,
    size: int | None,
    batch_size: int,
    typo_rate: float,
    seed: int,
    trust_remote_code: bool = False,
) -> Evaluation:
    """Evaluate one run or checkpoint; a run knows its task, its data folder and its text length."""
    from transformers.utils.logging import disable_progress_bar

    from rosewood.evaluation.classifier import load_classifier
    from rosewood.evaluation.suite import evaluate as run_suite
    from rosewood.results import RunInfo

    disable_progress_bar()  # transformers' bar for loading says nothing at this size
    directory = Path(run)
    info = RunInfo.load(directory / "run.json") if (directory / "run.json").exists() else None
    model, tokenizer = load_classifier(str(directory / "model") if info else run, trust_remote_code)
    folder = str(data_dir) if data_dir else (info.data_dir if info else None)
    evaluation = run_suite(
        model,
        tokenizer,
        task_of(run, task, directory if info else None),
        data_dir=folder,
        size=size,
        batch_size=batch_size,
        max_length=info.max_length if info else 128,
        typo_rate=typo_rate,
        seed=seed,
    )
    if info:
        evaluation.save(directory / "evaluation.json")
    return evaluation


def check_run(run: str, task: str | None) -> None:
    """Whether a run can be evaluated, said before any work."""
    from rosewood.results import RunInfo

    directory = Path(run)
    if (directory / "run.json").exists():
        status = RunInfo.load(directory / "run.json").status
        if status != "finished":
            advice = f"continue it with rosewood train --output {run} --resume"
            raise RunError(f"{run} is not finished ({status}): {advice}")
        return
    looks_like_a_path = run.startswith((".", "/", "runs/")) or run.count("/") > 1
    if looks_like_a_path and not directory.exists():
        raise RunError(f"there is no run or checkpoint {run}")
    task_of(run, task, None)


def task_of(run: str, name: str | None, directory: Path | None) -> Task:
    """The task that was asked for, or the one that the run knows."""
    from rosewood.data.tasks import load_task

    if name is not None:
        return load_task(name)
    if directory is None:
        raise RunError(f"{run} is a checkpoint, not a run, and does not say its task: add --task")
    return load_task(directory / "task.yaml")
