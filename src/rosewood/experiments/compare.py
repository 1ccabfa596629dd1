"""Run an experiment: every cell that is not finished, then the tables."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from rich.console import Console

from rosewood.experiments.cell import ERROR
from rosewood.experiments.engines.local import CellEngine, Event, LocalEngine
from rosewood.experiments.experiment import Experiment, read_experiment
from rosewood.experiments.grid import cells_of
from rosewood.experiments.status import CellStatus, LiveTable, finished_otherwise, status_of
from rosewood.experiments.tables import comparison_of, save_tables
from rosewood.results import Comparison
from rosewood.results.durable import write_whole


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
    if not any(each.result for each in found) and finished_otherwise(found):
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
