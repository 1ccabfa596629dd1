"""The robustness evaluation of one model on one task: clean, shifted, adversarial and noisy text."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from datasets import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rosewood.data.loading import load_split
from rosewood.data.tasks import Task
from rosewood.errors import DataError, RunError
from rosewood.evaluation import metrics
from rosewood.evaluation.noise import noisy
from rosewood.evaluation.predict import predict
from rosewood.intervals import wilson_interval
from rosewood.results import Evaluation, MissingSet, Role, SetResult
from rosewood.scoring import label_columns

_ROLES: dict[str, Role] = {"test": "clean", "shift": "shift", "adversarial": "adversarial"}


class EvaluationSet(NamedTuple):
    """A set to evaluate on; its data is loaded only when its turn comes."""

    name: str
    role: Role
    load: Callable[[], Dataset]


def evaluate(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    task: Task,
    data_dir: str | Path | None = None,
    size: int | None = None,
    batch_size: int = 64,
    max_length: int = 128,
    typo_rate: float = 0.3,
    seed: int = 0,
) -> Evaluation:
    """Accuracy and calibration on every evaluation set of the task, and on its test set with typos.

    A set whose data cannot be used is listed as missing, with the reason. `size` takes that many
    examples of each set at most. The model must have the task's labels, in any order.
    """
    columns = label_columns(model.config, task.labels)
    _check(task, typo_rate)
    sets: list[SetResult] = []
    missing: list[MissingSet] = []
    load = partial(load_split, task, data_dir=data_dir, size=size, seed=seed)
    for name, role, load_set in _sets(task, load, typo_rate, seed):
        try:
            dataset = load_set()
        except DataError as error:
            missing.append(MissingSet(name=name, role=role, reason=str(error)))
            continue
        logits = predict(model, tokenizer, dataset, task.text, max_length, batch_size)
        sets.append(_measured(name, role, logits[:, columns], dataset["label"][:]))
    if not sets:
        raise _nothing_usable(task, missing)
    return Evaluation(
        model=model.name_or_path or type(model).__name__,
        task=task.name,
        size=size,
        seed=seed,
        max_length=max_length,
        typo_rate=typo_rate,
        sets=sets,
        missing=missing,
    )


def _check(task: Task, typo_rate: float) -> None:
    if not 0 <= typo_rate <= 1:
        raise RunError(f"typo_rate is a share of words, from 0 to 1; got {typo_rate}.")
    if "typos" in task.splits:
        raise DataError(
            f"task {task.name} has a split called typos, the name of the test set with typos: rename the split."
        )


def _sets(task: Task, load: Callable[[str], Dataset], typo_rate: float, seed: int) -> Iterator[EvaluationSet]:
    for name, split in task.splits.items():
        if split.role in _ROLES:
            yield EvaluationSet(name, _ROLES[split.role], partial(load, name))
    clean = "test" if "test" in task.splits else "validation"
    if clean == "validation" and clean in task.splits:
        # Better than nothing, and called by its name: a user's own files often have no test set.
        yield EvaluationSet(clean, "clean", partial(load, clean))
    if clean in task.splits:

        def mistyped() -> Dataset:
            return noisy(load(clean), task.text, "typos", typo_rate, seed)

        yield EvaluationSet("typos", "noise", mistyped)


def _nothing_usable(task: Task, missing: list[MissingSet]) -> DataError:
    if not missing:
        return DataError(f"task {task.name} has no test, shift or adversarial split: add one to evaluate on.")
    reasons = "\n".join(dict.fromkeys(each.reason for each in missing))
    return DataError(f"no evaluation set of task {task.name} can be used:\n{reasons}")


def _measured(name: str, role: Role, logits: np.ndarray, labels: list[int]) -> SetResult:
    probabilities = metrics.softmax(logits)
    accuracy = metrics.accuracy(probabilities, labels)
    return SetResult(
        name=name,
        role=role,
        examples=len(labels),
        accuracy=accuracy,
        interval=wilson_interval(round(accuracy * len(labels)), len(labels)),
        ece=metrics.expected_calibration_error(probabilities, labels),
        brier=metrics.brier(probabilities, labels),
        nll=metrics.negative_log_likelihood(probabilities, labels),
    )
