"""The runs of the playground, what each says of a sentence, and sentences to begin with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rosewood.data.loading import load_split, needs_hub
from rosewood.data.tasks import Task
from rosewood.errors import DataError, RunError
from rosewood.evaluation.predict import TextQuery, answer
from rosewood.models.scoring import Row, Scorer, label_columns

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ServedRun:
    """A model under the name that the page gives it."""

    name: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    labels: list[str]
    columns: list[int]  # the model's outputs in the order of the labels
    max_length: int

    @classmethod
    def of(
        cls, name: str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, task: Task, max_length: int
    ) -> ServedRun:
        """Checks that the model is one of the task, and takes it out of training."""
        if task.multi_label:
            raise RunError(f"{name} is for several labels a text, and the playground shows one: serve other runs")
        Scorer(model, tokenizer, max_length)  # refuses what cannot be scored
        return cls(name, model.eval(), tokenizer, task.labels, label_columns(model.config, task.labels), max_length)

    def probabilities(self, texts: Sequence[Row]) -> Floats:
        """Class probabilities in the order of the labels, `(texts, classes)`."""
        questions = [TextQuery(row, self.max_length) for row in texts]
        logits = answer(self.model, self.tokenizer, questions, progress=False).logits(questions)
        return np.asarray(softmax(logits[:, self.columns].astype(np.float64), axis=1))

    def read(self, texts: Mapping[str, str]) -> dict[str, int]:
        """Field -> how many of its characters reach the model."""
        scorer, row = Scorer(self.model, self.tokenizer, self.max_length), tuple(texts.values())
        return {field: scorer.visible(row, place) for place, field in enumerate(texts)}


def names_of(runs: Sequence[str]) -> list[str]:
    """The last part of each path, or the whole of it where two end alike."""
    if len(set(runs)) < len(runs):
        twice = next(run for run in runs if runs.count(run) > 1)
        raise RunError(f"{twice} is named twice: it stands on the page once")
    short = [Path(run).resolve().name for run in runs]
    return [run if short.count(name) > 1 else name for run, name in zip(runs, short, strict=True)]


def common_task(tasks: Mapping[str, Task]) -> Task:
    """The task that all runs share; only then do their answers compare."""
    first, task = next(iter(tasks.items()))
    for run, other in tasks.items():
        if _question(other) != _question(task):
            raise RunError(
                f"runs stand side by side only if they answer the same question: {first} is of {_described(task)}, "
                f"{run} of {_described(other)}. Serve them apart, or name one task for all of them with --task"
            )
    return task


def _question(task: Task) -> tuple[str, list[str], list[str]]:
    return task.name, task.text, task.labels


def _described(task: Task) -> str:
    return f"task {task.name} ({', '.join(task.text)}: {', '.join(task.labels)})"


SAMPLES = 4
SHORT = 160
"""Characters of all texts of an example together."""


def samples(task: Task, data_dir: Path | None) -> list[list[str]]:
    """The texts and the label of a few examples; none where the data are not available: nothing is fetched."""
    split = "test" if "test" in task.splits else "validation"
    try:
        if needs_hub(task, split, data_dir):
            return []
        rows = load_split(task, split, data_dir, 20 * SAMPLES)
    except DataError:
        return []
    short: dict[int, list[list[str]]] = {label: [] for label in range(len(task.labels))}
    for *texts, label in zip(*(rows[field][:] for field in task.text), rows["label"][:], strict=True):
        if sum(map(len, texts)) <= SHORT:
            short[label].append([*texts, task.labels[label]])
    each = max(1, SAMPLES // len(task.labels))
    return [row for found in short.values() for row in found[:each]][:SAMPLES]


class Answer(NamedTuple):
    """The class probabilities of a run, and how much of each text that is cut off it has read."""

    run: str
    probabilities: list[float]
    cut: dict[str, int]
    """Field -> characters read, of those fields that are longer."""
    max_length: int

    @property
    def prediction(self) -> int:
        return max(range(len(self.probabilities)), key=self.probabilities.__getitem__)


def typed(task: Task, texts: Sequence[str | None]) -> dict[str, str]:
    """Field -> text, cleaned like the texts that the runs were trained on; an empty one is refused."""
    found = {field: _clean(text or "", task) for field, text in zip(task.text, texts, strict=True)}
    empty = [field for field, text in found.items() if not text]
    if empty:
        raise DataError(f"There is nothing to read yet: type the {' and the '.join(empty)} first.")
    return found


def _clean(text: str, task: Task) -> str:
    text = text.encode("utf-8", "replace").decode()  # half a surrogate pair is no text to a tokenizer
    for old, new in task.replace.items():
        text = text.replace(old, new)
    return text.strip()


def ask(runs: Sequence[ServedRun], texts: Mapping[str, str]) -> list[Answer]:
    """Every run's answer to the same texts."""
    row = tuple(texts.values())
    return [Answer(run.name, run.probabilities([row])[0].tolist(), _cut(run, texts), run.max_length) for run in runs]


def _cut(run: ServedRun, texts: Mapping[str, str]) -> dict[str, int]:
    return {field: read for field, read in run.read(texts).items() if read < len(texts[field])}
