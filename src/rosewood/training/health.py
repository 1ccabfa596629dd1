"""Health of a training run: steps that are not finite move nothing, and a model that does not learn is reported."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from scipy.stats import entropy
from torch import Tensor, nn
from transformers import TrainerCallback

from rosewood.errors import RunError
from rosewood.recipe import Recipe
from rosewood.results.guessing import at_guessing
from rosewood.tensors.shards import stacked_norms
from rosewood.tensors.statistics import wilson_interval

NEAR = 0.98
"""A loss above this share of that of guessing counts as that of guessing."""
RECENT = 1 / 3
"""Of the steps so far, over which the loss is averaged."""
CLEAN_LOSS = "loss_ce"
MAJORITY, ANSWERS, EXAMPLES = "eval_majority", "eval_answers", "eval_examples"


def guesses(metrics: dict[str, Any]) -> bool | None:
    """Whether validation accuracy is at guessing; None if these metrics do not say."""
    accuracy, majority, examples = (metrics.get(name) for name in ("eval_accuracy", MAJORITY, EXAMPLES))
    if accuracy is None or majority is None or not examples:
        return None
    return at_guessing(wilson_interval(round(accuracy * examples), int(examples)), majority)


def guessing_loss(labels: Sequence[Any], class_weights: Sequence[float] | None = None) -> float:
    """The lowest loss of a model that gives every text the same probabilities."""
    if np.ndim(labels) == 2:  # several labels a text: the mean over them, as in their loss
        shares = np.mean(labels, axis=0)
        return float(np.mean(entropy([shares, 1 - shares])))
    counts = np.bincount(labels)
    weights = np.ones(len(counts)) if class_weights is None else np.array(class_weights)[: len(counts)]
    return float(entropy(counts * weights))


class WarnsOfGuessing(TrainerCallback):
    """Warns once when, after a part `early` of the steps, the training loss is still that of the label frequencies
    alone, and once when every validation example gets the same answer.
    """

    def __init__(self, guessing: float, recipe: Recipe, early: float = 1 / 3) -> None:
        self._guessing = guessing
        self._recipe = recipe
        self._early = early
        self._losses: dict[int, float] = {}
        self._said: set[str] = set()

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
        loss = (logs or {}).get(CLEAN_LOSS)
        if loss is None:
            return
        self._losses[state.global_step] = loss
        recent = [loss for step, loss in self._losses.items() if step > (1 - RECENT) * state.global_step]
        mean = float(np.mean(recent))
        if self._is_late(state) and mean >= NEAR * self._guessing > 0:
            self._say(
                "loss",
                f"the training loss is still that of guessing: after {state.global_step} of {state.max_steps} steps "
                f"cross-entropy is {mean:.3f}, and label frequencies alone give {self._guessing:.3f}",
                args,
                state,
            )

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: dict[str, Any] | None = None, **_: Any) -> None:
        found = metrics or {}
        if found.get(ANSWERS) == 1 and found.get(MAJORITY) is not None and self._is_late(state):
            self._say(
                "answers",
                f"every validation example gets the same answer after {state.global_step} of {state.max_steps} steps: "
                f"accuracy is {found['eval_accuracy']:.1%}, and {found[MAJORITY]:.1%} of the examples have the most "
                "frequent label",
                args,
                state,
            )

    def _is_late(self, state: Any) -> bool:
        return bool(state.global_step >= self._early * state.max_steps)

    def _say(self, what: str, finding: str, args: Any, state: Any) -> None:
        if what in self._said or not state.is_world_process_zero:
            return
        self._said.add(what)
        warnings.warn(f"{finding}. {self._advice(args.learning_rate)}", stacklevel=3)

    def _advice(self, rate: float) -> str:
        advice = [
            f"Change the learning rate ({rate:g} now; higher if the loss hardly moves, lower if it jumps)",
            "train for more epochs",
        ]
        weaker = _strengths(self._recipe)
        if weaker:
            advice.append(f"or disturb the model less: {'; '.join(weaker)}")
        return f"{', '.join(advice)}." if weaker else f"{' or '.join(advice)}."


def _strengths(recipe: Recipe) -> list[str]:
    """What weakens the disturbance of a recipe: its gentle variant, a ramp, and settings with their values."""
    plain = recipe.to_dict()
    if not plain.get("perturbation"):
        return []
    weight = plain["objective"].get("divergence_weight")
    found = [f"take the variant {recipe.name}:gentle"] if "gentle" in recipe.variants and ":" not in recipe.name else []
    if weight and not isinstance(weight, dict):
        found.append(f"let the weight rise, --set 'objective.divergence_weight={{to: {weight:g}, over: 0.5}}'")
    names = {"objective": ("divergence_weight", "perturbed_weight"), "perturbation": ("radius", "step_size", "steps")}
    lower = [
        f"{part}.{name}={value['to'] if isinstance(value, dict) else value:g}"
        for part, settings in names.items()
        for name in settings
        if (value := plain[part].get(name))
    ]
    return found + ([f"lower {', '.join(lower)}"] if lower else [])


class SkippedSteps:
    """Counts skipped steps; the step after the `limit`-th in a row, if it must be skipped too, raises.

    In a row, because weights that yield NaN yield it for every batch, while a single odd batch passes.
    """

    def __init__(self, limit: int) -> None:
        if limit < 0:
            raise RunError(f"max_skipped_steps is a number of steps, 0 or more, not {limit}")
        self.limit = limit
        self.in_a_row = 0

    def may_end_now(self) -> bool:
        """Whether one more skipped step ends the run."""
        return self.in_a_row == self.limit

    def skip(self, step: int, terms: Mapping[str, Tensor], parameter: str | None) -> None:
        """Count this step, or end the run with what was not finite; `parameter` is known if `may_end_now`."""
        cause = _cause({name: value.item() for name, value in terms.items()})
        if self.may_end_now():
            where = f"; the first parameter with such a gradient is {parameter}" if parameter else ""
            row = f"{self.in_a_row + 1} steps in a row" if self.limit else "one step"
            raise RunError(
                f"NaN or infinity in {row} (max_skipped_steps={self.limit}), at last in step {step}: {cause}{where}. "
                "The weights are those from before these steps. Look at the data of these steps, lower the learning "
                "rate, or train in bf16 or float32 if this was fp16."
            )
        self.in_a_row += 1
        warnings.warn(f"step {step} is skipped, nothing moves: {cause}", stacklevel=2)

    def reset(self) -> None:
        self.in_a_row = 0


def all_finite(values: list[Tensor]) -> bool:
    """Whether no number is NaN or infinite."""
    return bool(torch.stack([value.isfinite().all() for value in values]).all())


def first_not_finite(model: nn.Module) -> str | None:
    """The first parameter, in the model's order, whose gradient has a NaN or an infinity."""
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    finite = stacked_norms(list(gradients.values())).isfinite().tolist() if gradients else []
    return next((name for name, good in zip(gradients, finite, strict=True) if not good), None)


def _cause(terms: Mapping[str, float]) -> str:
    values = ", ".join(f"{name} {value:g}" for name, value in terms.items())
    bad = [name for name, value in terms.items() if not math.isfinite(value)]
    if bad:
        return f"the term {bad[0]} is {terms[bad[0]]:g} (of {values})"
    return f"the terms are finite ({values}), their gradient is not"
