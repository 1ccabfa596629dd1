"""Probe recipes: fine-tune on data that two features explain equally well, and see which one each model took up.

A probe is an ordinary experiment on probing tasks (recipes x tasks x seeds), so whatever holds for `compare` holds
here: finished cells are skipped, interrupted ones go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from rosewood.data.loading import load_split
from rosewood.data.tasks import Task, label_key, load_task
from rosewood.errors import AbsentError, DataError, ExperimentError
from rosewood.experiments.compare import compare
from rosewood.experiments.engines.local import CellEngine
from rosewood.experiments.experiment import Experiment, build_experiment
from rosewood.experiments.grid import cells_of
from rosewood.experiments.status import status_of
from rosewood.lab.probing import AGREEING, OPPOSED, Probing, probing_of, table
from rosewood.results import write
from rosewood.results.grid import to_markdown

TASKS = ("probe-the", "probe-length")
RESULT, MARKDOWN, FIGURE = "probing.json", "probing.md", "probing.html"
# Batches of similar length, the default elsewhere, would each hold one label where length goes with the label.
TRAINING = {"train_sampling_strategy": "random"}
_SURFACE = "surface_feature_label"


def probe(
    recipes: Sequence[str],
    output: str | Path,
    tasks: Sequence[str] = TASKS,
    seeds: Sequence[int] = range(5),
    model: str = "minilm",
    data_dir: str | Path | None = None,
    training: dict[str, Any] | None = None,
    train_size: int | None = None,
    engine: CellEngine | None = None,
    console: Console | None = None,
) -> Probing:
    """Fine-tune a model with each recipe and seed on each probing task, and score what it has generalised to.

    Everything goes to `output`: a folder for each cell, the tables of `compare`, and probing.json, probing.md and the
    scatter of all runs, probing.html. A cell that failed is missing there, and its error is in
    results.json. `training` are arguments of transformers' trainer; those of a recipe's paper hold unless given.
    """
    experiment = experiment_of(recipes, tasks, seeds, model, training or {}, train_size)
    cells = cells_of(experiment, data_dir)
    for task in tasks:
        check_features(load_task(task), data_dir)
    compare(experiment, output, data_dir, engine, console)
    found = [status_of(cell, Path(output)).result for cell in cells]
    probing = probing_of(model, [each for each in found if each is not None])
    save(probing, Path(output))
    return probing


def experiment_of(
    recipes: Sequence[str],
    tasks: Sequence[str],
    seeds: Sequence[int],
    model: str,
    training: dict[str, Any],
    train_size: int | None,
) -> Experiment:
    """The experiment that a probe is."""
    raw = {
        "name": "probe",
        "title": "Probing: linguistic or surface generalisation",
        "recipes": list(recipes),
        "tasks": list(tasks),
        "models": [model],
        "seeds": list(seeds),
        "training": TRAINING | training,
        "train_size": train_size,
    }
    return build_experiment(raw, "the probe")


def check_features(task: Task, data_dir: str | Path | None = None) -> None:
    """Refuse a task whose sets do not oppose two features, because its scores would mean nothing."""
    if len(task.labels) != 2 or not {"train", "validation", OPPOSED[0]} <= set(task.splits):
        raise ExperimentError(
            f"task {task.name} is not a probing task: expected two labels and the splits train, validation and "
            f"{OPPOSED[0]} (also read: {AGREEING[1]}, {OPPOSED[1]}); got the labels {', '.join(task.labels)} and the "
            f"splits {', '.join(task.splits)}. Choose another --task, such as {TASKS[0]}."
        )
    for name in (*AGREEING, *OPPOSED):
        if name in task.splits:
            _check_split(task, name, data_dir)


def _check_split(task: Task, name: str, data_dir: str | Path | None) -> None:
    try:
        rows = load_split(task, name, data_dir)
    except AbsentError:
        if name in ("train", OPPOSED[0]):
            raise
        return
    if _SURFACE not in rows.column_names:
        raise DataError(
            f"split {name} of task {task.name}: expected a column {_SURFACE!r} with 0 or 1, "
            f"got {', '.join(rows.column_names)}."
        )
    agree = [label_key(surface) == str(label) for surface, label in zip(rows[_SURFACE], rows["label"], strict=True)]
    wanted = name in AGREEING
    if agree.count(wanted) < len(agree):
        raise DataError(
            f"split {name} of task {task.name}: expected the label and {_SURFACE} to be "
            f"{'equal' if wanted else 'different'} in every row; they are not in {agree.count(not wanted)} of "
            f"{len(agree)}, the first being row {agree.index(not wanted) + 1}."
        )
    if len(set(rows["label"])) < 2:
        raise DataError(f"split {name} of task {task.name}: expected both labels, got one.")


def save(probing: Probing, output: Path) -> None:
    """Write the scores, their table and, if there are any, their figure."""
    from rosewood.report.figures.lab import probing_figure
    from rosewood.report.figures.save import save as save_figure

    probing.save(output / RESULT)
    write(output / MARKDOWN, to_markdown(table(probing)) + "\n")
    if probing.runs:
        save_figure(probing_figure(probing), output / FIGURE)
