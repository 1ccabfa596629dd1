"""Moments of training: what a run was like after some of its steps, measured while it trains.

RUN/moments/step-000100.json  one file per moment
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainerCallback

from rosewood.data.loading import load_split
from rosewood.evaluation.predict import predict
from rosewood.models.open import load_pretrained
from rosewood.models.pretrained_part import pretrained_names
from rosewood.models.scoring import label_columns
from rosewood.results import Evaluation, Moment
from rosewood.training.plan import Plan

FOLDER = "moments"
Measure = Callable[[PreTrainedModel, PreTrainedTokenizerBase], Evaluation]
Distance = Callable[[PreTrainedModel], float]


class Moments(TrainerCallback):
    """Measures a run in place after some of its steps; one that is on disk already is not measured again.

    Training goes on as it would without: the random state is left as it was, whether a moment is measured or not.
    """

    def __init__(
        self, run: Path, plan: Plan, steps: Sequence[int], batch_size: int, measure: Measure, distance: Distance | None
    ) -> None:
        self._folder, self._plan, self._steps = run / FOLDER, plan, frozenset(steps)
        self._batch_size, self._measure, self._distance = batch_size, measure, distance
        self._began = 0.0
        self._seconds: list[float] = []

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._began = time.monotonic()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._seconds.append(time.monotonic() - self._began)
        if state.global_step not in self._steps:
            return
        path = self._folder / f"step-{state.global_step:06}.json"
        if not path.exists():
            with torch.random.fork_rng():
                self._moment(state.global_step, kwargs["model"], kwargs["processing_class"]).save(path)
        self._seconds = []

    def _moment(self, step: int, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> Moment:
        return Moment(
            step=step,
            validation_accuracy=self._validation_accuracy(model, tokenizer),
            distance=None if self._distance is None else self._distance(model),
            step_seconds=median(self._seconds) if self._seconds else None,
            evaluation=self._measure(model, tokenizer),
        )

    def _validation_accuracy(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> float:
        plan = self._plan
        rows = load_split(plan.task, "validation", plan.data_dir, plan.validation_size, seed=0)
        logits = predict(model, tokenizer, rows, plan.task.text, plan.max_length, self._batch_size, progress=False)
        columns = label_columns(model.config, plan.task.labels)
        return float((logits[:, columns].argmax(axis=1) == rows["label"][:]).mean())


def load_moments(run: Path) -> list[Moment]:
    """All that were measured while a run trained, in its order."""
    return [Moment.load(path) for path in sorted((run / FOLDER).glob("step-*.json"))]


def distance_from_pretrained(plan: Plan) -> Distance | None:
    """How far a model of this plan is from the weights it started with; to be made before training, which it seeds.

    None with an adapter, whose layers have other names.
    """
    if plan.lora is not None:
        return None
    model, _ = load_pretrained(plan.model, plan.task, plan.seed, plan.trust_remote_code == plan.model)
    before = {name: model.get_parameter(name).detach() for name in pretrained_names(model)}

    def distance(trained: PreTrainedModel) -> float:
        moved = _norm([trained.get_parameter(name).detach().cpu() - value for name, value in before.items()])
        return moved / _norm(list(before.values()))

    return distance


def _norm(tensors: Sequence[Tensor]) -> float:
    return float(torch.stack([tensor.double().norm() for tensor in tensors]).norm())
