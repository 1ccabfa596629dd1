"""Run an experiment: every cell that is not finished, then the tables. Probe which of two features recipes take up.

A probe is an ordinary experiment on tasks that two features explain equally well, so whatever holds for `compare` holds
for it: finished cells are skipped, interrupted ones go on.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console

from rosewood.data.loading import load_split
from rosewood.data.tasks import Task, label_key, load_task
from rosewood.errors import AbsentError, DataError, ExperimentError
from rosewood.experiments.cell import ERROR, CellStatus, LiveTable, finished_with_other_settings, status_of
from rosewood.experiments.engines.local import CellEngine, Event, LocalEngine
from rosewood.experiments.experiment import Experiment, build_experiment, read_experiment
from rosewood.experiments.grid import cells_of
from rosewood.experiments.tables import comparison_of, save_tables
from rosewood.lab.probing import AGREEING, OPPOSED, Probing, probing_of, table
from rosewood.results import Comparison, write
from rosewood.results.files import write_whole
from rosewood.results.grid import to_markdown


def compare(
    experiment: str | Path | Experiment,
    output: str | Path | None = None,
    data_dir: str | Path | None = None,
    engine: CellEngine | None = None,
    console: Console | None = None,
) -> Comparison:
    """Train, evaluate and attack every cell of an experiment, and compare the recipes.

    Finished cells are skipped, interrupted ones go on, those that failed are tried again: the same call, repeated
    after a crash, leads to the same tables. A cell that fails is in the result with its error, and the others go on.

    Args:
        experiment: an experiment, or the path of its YAML file.
        output: the folder for everything, by default runs/NAME: a folder for each cell, results.json, the tables as
            Markdown, LaTeX and CSV, and report.html.
        data_dir: the data folder; by default the one that ROSEWOOD_DATA names.
        engine: where cells run; by default processes of this machine.
        console: where the live table is shown.

    Returns:
        All figures over seeds, with intervals and tests against the baseline.

    Raises:
        ExperimentError: the file cannot be used; the error lists everything that is wrong with it.

    Example:
        >>> compare("experiments/reviews-small.yaml", output="runs/reviews-small")  # doctest: +SKIP
    """
    given, experiment = experiment, experiment if isinstance(experiment, Experiment) else read_experiment(experiment)
    file = None if isinstance(given, Experiment) else Path(given)
    output = output_of(experiment, output)
    found = [status_of(cell, output) for cell in cells_of(experiment, data_dir)]
    return run_cells(experiment, found, output, engine or LocalEngine(), console or Console(), file)[0]


def run_cells(
    experiment: Experiment,
    found: Sequence[CellStatus],
    output: Path,
    engine: CellEngine,
    console: Console,
    file: Path | None = None,
) -> tuple[Comparison, list[CellStatus]]:
    """Run the cells that are not finished; the comparison, and the present status of the cells."""
    try:
        with LiveTable([each.cell for each in found], output, console).shown() as follow, _terminable():
            for event in engine.run(_prepared(found)):
                _note_loss(event)
                follow(event)
    finally:
        found = [status_of(each.cell, output) for each in found]
        comparison = tables_of(experiment, found, output, file)
    return comparison, found


def tables_of(
    experiment: Experiment, found: Sequence[CellStatus], output: Path, file: Path | None = None
) -> Comparison:
    """Compare what is finished and write the tables; empty ones are not written where cells of other data are finished.

    Whoever forgets to name the data folder would otherwise lose the tables of all that was run with it.
    """
    if not any(each.result for each in found) and finished_with_other_settings(found):
        return comparison_of(experiment, found)
    return save_tables(experiment, found, output, file)


def output_of(experiment: Experiment, output: str | Path | None = None) -> Path:
    """Where the cells and tables of an experiment go."""
    return Path("runs") / experiment.name if output is None else Path(output)


def _prepared(found: Sequence[CellStatus]) -> list[Path]:
    """The folders of the cells that are not finished, ready for a worker; the first seed of all recipes comes first."""
    seeds = list(dict.fromkeys(each.cell.seed for each in found))
    in_turn = sorted(found, key=lambda each: seeds.index(each.cell.seed))
    unfinished = [each for each in in_turn if each.result is None]
    for each in unfinished:
        (each.folder / ERROR).unlink(missing_ok=True)
        each.cell.save(each.folder)
    return [each.folder for each in unfinished]


def _note_loss(event: Event) -> None:
    """A process that was killed could not say so itself."""
    if event.lost:
        write_whole(event.folder / ERROR, f"{event.lost}\n")


@contextmanager
def _terminable() -> Iterator[None]:
    """A cluster's SIGTERM ends an experiment as Ctrl-C does: workers save first."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


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

    Args:
        recipes: names of recipes, NAME:VARIANT, or YAML files.
        output: gets a folder for each cell, the tables of `compare`, and probing.json, probing.md and the scatter of
            all runs, probing.html. A cell that failed is missing there; its error is in results.json.
        tasks: probing tasks, or their YAML files.
        seeds: each recipe is run with each of them.
        model: a folder, a Hub name, or one of `rosewood list models`.
        data_dir: the folder with the tasks' files.
        training: arguments of transformers' trainer; by default those of the recipe's paper.
        train_size: train on a seeded sample of this size.
        engine: where cells run; by default one after the other on this machine.
        console: where progress is shown.

    Returns:
        The scores of the finished runs.

    Raises:
        ExperimentError: a recipe or task is unknown, or a task does not oppose two features.
        DataError: the data of a task cannot be used.

    Example:
        >>> probe(["vanilla", "rose-ensemble"], "runs/probe", seeds=range(2))  # doctest: +SKIP
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
    from rosewood.report.figures.style import save as save_figure

    probing.save(output / RESULT)
    write(output / MARKDOWN, to_markdown(table(probing)) + "\n")
    if probing.runs:
        save_figure(probing_figure(probing), output / FIGURE)
