"""The files of an evaluation: the latest, the last of each suite, and all predictions in one Parquet file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from rosewood.errors import RunError
from rosewood.results import Evaluation
from rosewood.results.files import replacing

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
        raise RunError(f"{path} is damaged: it has no set. Repeat rosewood evaluate {folder}")
    return evaluation


def _tag(suite: str | None, task: str) -> str:
    # The names of suites and tasks are anybody's, and a suite may be called like a task.
    return re.sub(r"[^\w-]", "_", suite if suite is not None else f"task-{task}")


_SCHEMA = pa.schema(
    {
        "set": pa.string(),
        "row": pa.int32(),  # among the rows that were evaluated
        "label": pa.string(),  # null in sets of anomalies
        "prediction": pa.string(),
        "logits": pa.list_(pa.float32()),  # in the order of the labels of the evaluation
        "groups": pa.map_(pa.string(), pa.string()),
    }
)


class PredictionsFile:
    """Takes the predictions of one set after the other."""

    def __init__(self, writer: pq.ParquetWriter) -> None:
        self._writer = writer

    def write(
        self,
        name: str,
        logits: NDArray[np.float32],
        labels: Sequence[str | None],
        predictions: Sequence[str],
        groups: Mapping[str, Sequence[str]],
    ) -> None:
        """Add the examples of a set."""
        per_row = [[(kind, values[row]) for kind, values in groups.items()] for row in range(len(logits))]
        columns = {
            "set": [name] * len(logits),
            "row": list(range(len(logits))),
            "label": list(labels),
            "prediction": list(predictions),
            "logits": list(logits),
            "groups": per_row,
        }
        self._writer.write_table(pa.table(columns, schema=_SCHEMA))


@contextmanager
def predictions_file(path: Path) -> Iterator[PredictionsFile]:
    """A file to fill, which takes its place at the end; after a failure nothing has changed."""
    try:
        with replacing(path) as temporary, pq.ParquetWriter(temporary, _SCHEMA) as writer:
            yield PredictionsFile(writer)
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror}. Check the folder and the space left.") from error


def correct_by_set(path: Path) -> dict[str, NDArray[np.bool_]]:
    """Which examples of each labelled set the model had right, in their order."""
    try:
        table = pq.ParquetFile(path).read(columns=["set", "label", "prediction"])
        sets, labels, predictions = (table.column(name).to_pylist() for name in ("set", "label", "prediction"))
    except (OSError, pa.ArrowException, KeyError) as error:
        raise RunError(f"cannot read the predictions in {path}: {error}. Evaluate the run again.") from None
    found: dict[str, list[bool]] = {}
    for name, label, prediction in zip(sets, labels, predictions, strict=True):
        if label is not None:
            found.setdefault(name, []).append(label == prediction)
    return {name: np.array(values) for name, values in found.items()}
