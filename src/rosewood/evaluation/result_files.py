"""Where evaluations lie in a run: the latest, and beside it the last on each suite and on the run's own task."""

from __future__ import annotations

import re
from pathlib import Path

from rosewood.errors import RunError
from rosewood.results import Evaluation

LATEST = "evaluation.json"


def results_path(folder: Path, suite: str | None, task: str) -> Path:
    """The file that the next evaluation on the same suite (of a task, on its own sets) replaces."""
    return folder / f"evaluation-{_tag(suite, task)}.json"


def predictions_path(folder: Path, suite: str | None, task: str) -> Path:
    """The predictions that belong to it."""
    return folder / f"predictions-{_tag(suite, task)}.parquet"


def save_evaluation(evaluation: Evaluation, folder: Path) -> None:
    """Write an evaluation as the latest, and where those of other suites do not replace it."""
    evaluation.save(results_path(folder, evaluation.suite, evaluation.task))
    evaluation.save(folder / LATEST)


def load_evaluation(folder: Path, suite: str | None = None) -> Evaluation:
    """The latest evaluation of a run, or the last on a suite."""
    path = folder / LATEST if suite is None else results_path(folder, suite, "")
    if not path.exists():
        on = "" if suite is None else f" on the suite {suite}"
        advice = f"rosewood evaluate {folder}" + ("" if suite is None else f" --suite {suite}")
        raise RunError(f"{folder} has no evaluation{on} ({path} does not exist): {advice}")
    evaluation = Evaluation.load(path)
    if not evaluation.sets:
        raise RunError(f"{path} holds the figures of no set: it is damaged. Repeat rosewood evaluate {folder}")
    return evaluation


def _tag(suite: str | None, task: str) -> str:
    # The names of suites and tasks are anybody's, and a suite may be called like a task.
    return re.sub(r"[^\w-]", "_", suite if suite is not None else f"task-{task}")
