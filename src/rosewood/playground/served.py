"""The runs that stand side by side on the page: all of one task, and ready to answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rosewood.data.tasks import Task
from rosewood.errors import RunError
from rosewood.evaluation.predict import Question, answer
from rosewood.scoring import Row, Scorer, label_columns

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
        questions = [Question(row, self.max_length) for row in texts]
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
