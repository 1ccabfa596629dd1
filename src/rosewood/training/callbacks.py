"""What watches a run: progress, Ctrl-C, robust accuracy, steps that are not finite, and a model that does not learn."""

from __future__ import annotations

import math
import signal
import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from rich import get_console
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from scipy.stats import entropy
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase, TrainerCallback
from transformers.integrations import integration_utils as integrations

from rosewood.attacks.runner.api import robust_accuracy
from rosewood.attacks.runner.attack import Attack
from rosewood.errors import RunError, closest
from rosewood.recipe import Recipe
from rosewood.results.evaluation import at_guessing
from rosewood.tensors.shards import anywhere, stacked_norms
from rosewood.tensors.statistics import wilson_interval
from rosewood.words.lexicon import Lexicon

SHOWN = {
    "loss": "loss {:.3f}",
    "kept_share": "kept {:.2f}",
    "eval_accuracy": "val {:.1%}",
    "eval_robust_accuracy": "robust {:.1%}",
}


class TrainingProgress(TrainerCallback):
    """One bar for the whole training, resumed runs included."""

    def __init__(self, title: str) -> None:
        self._facts: dict[str, str] = {}
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=12),
            MofNCompleteColumn(),
            TimeRemainingColumn(elapsed_when_finished=True),
            TextColumn("{task.fields[facts]}"),
        )
        self._task = self._bar.add_task(title, total=None, facts="")

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.is_world_process_zero:
            self._bar.start()
        self._bar.update(self._task, total=state.max_steps, completed=state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._bar.update(self._task, completed=state.global_step)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
        self._facts |= {key: SHOWN[key].format(value) for key, value in (logs or {}).items() if key in SHOWN}
        self._bar.update(self._task, facts="  ".join(self._facts.values()))

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: dict[str, Any] | None = None, **_: Any) -> None:
        self.on_log(args, state, control, metrics)  # with what other callbacks have added

    def close(self) -> None:
        """Leave the bar as it is, also when training ended by an exception."""
        self._bar.stop()


class StepTimes(TrainerCallback):
    """The time between the ends of steps; the first, which warms everything up, is left out."""

    def __init__(self) -> None:
        self._ends: list[float] = []

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self._ends.append(time.monotonic())

    def seconds(self) -> float:
        return median(end - begin for begin, end in pairwise(self._ends))


class Interrupted(BaseException):
    """Training was asked to stop and has saved a checkpoint; not an Exception, so that nothing swallows it."""


class SaveAndStop(TrainerCallback):
    """Finishes the step, saves, and raises Interrupted; a second signal ends the process at once.

    Also saves every `minutes`, so that a crash costs no more than that.
    """

    def __init__(self, minutes: float = 5.0) -> None:
        self._seconds = minutes * 60
        self._saved = time.monotonic()
        self._stopping = False
        self._previous: dict[int, Any] = {}

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._stopping = True
        self.close()

    def close(self) -> None:
        """Give the signals back to their former handlers."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._saved = time.monotonic()
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._stop)

    def _is_due(self, device: torch.device) -> bool:
        due = time.monotonic() - self._saved > self._seconds
        # A checkpoint is written by all processes together, and they get a signal at different moments.
        self._stopping, due = anywhere([self._stopping, due], device)
        return self._stopping or due

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._is_due(args.device):
            control.should_save = True

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._is_due(args.device):
            control.should_save = True

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._saved = time.monotonic()
        if self._stopping:
            raise Interrupted


METRIC = "eval_robust_accuracy"
ATTACKED = "eval_attacked_accuracy"
CHOOSES = "eval_robust_if_learnt"


class RobustValidation(TrainerCallback):
    """Adds `eval_robust_accuracy` to every evaluation: the share of examples that stay right under an attack.

    Beside it is the accuracy on the same examples without the attack, and the figure that chooses between epochs: a
    model at guessing cannot be misled, so it comes after every other, whatever it keeps under attack.
    The examples are the same ones every time. The search has random numbers of its own, so that training goes on as
    it would without it.
    """

    def __init__(
        self,
        data: Dataset,
        tokenizer: PreTrainedTokenizerBase,
        attack: Attack,
        lexicon: Lexicon | None,
        field: str | None,
        examples: int,
        max_length: int,
    ) -> None:
        self._data, self._tokenizer, self._attack, self._lexicon = data, tokenizer, attack, lexicon
        self._field, self._examples, self._max_length = field, examples, max_length

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        metrics: dict[str, float] = kwargs["metrics"]
        console = get_console() if state.is_world_process_zero else Console(quiet=True)
        with torch.random.fork_rng(), console.status(f"{self._attack.name} on validation data"):
            summary = robust_accuracy(
                kwargs["model"],
                self._tokenizer,
                self._data,
                self._attack,
                examples=self._examples,
                lexicon=self._lexicon,
                field=self._field,
                max_length=self._max_length,
                progress=False,
            )
        if not summary.attacked:
            warnings.warn(
                f"{self._attack.name} could change only {summary.changeable_words:.1%} of the words of the validation "
                "texts, so that the robust accuracy that selects the best epoch is the clean one. Are they in another "
                "language?",
                stacklevel=2,
            )
        robust = summary.robust_accuracy
        found = {METRIC: robust, ATTACKED: summary.clean_accuracy, CHOOSES: robust - 1 if guesses(metrics) else robust}
        metrics |= found
        state.log_history[-1] |= found


TENSORBOARD = "tensorboard"
PACKAGES = {"azure_ml": "azureml-sdk", "comet_ml": "comet-ml"}
"""What an integration's package is called, where that is not its name."""


def check_report_to(names: Sequence[str]) -> None:
    """Refuse what transformers does not know, and what needs a package that is not installed."""
    known = sorted(integrations.INTEGRATION_TO_CALLBACK)
    for name in names:
        if name not in known:
            raise RunError(f"--report-to {name}: there is no such integration; {closest(name, known)}")
        if name not in integrations.get_available_reporting_integrations() and name != "flyte":
            package = PACKAGES.get(name, name)
            raise RunError(f"--report-to {name} needs a package that is not installed: pip install {package}")


def reporters(names: Sequence[str], output: Path) -> list[TrainerCallback]:
    """The callbacks of these integrations."""
    found = []
    for name in names:
        callback = integrations.INTEGRATION_TO_CALLBACK[name]()
        if name == TENSORBOARD and callback.logging_dir is None:
            # By default within the Trainer's own folder, which a finished run has no more.
            callback.logging_dir = str(output.resolve() / TENSORBOARD)
        found.append(callback)
    return found


NEAR = 0.98
"""A loss above this share of the loss of guessing counts as guessing."""
RECENT = 1 / 3
"""The share of the steps so far over which the loss is averaged."""
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
    if np.ndim(labels) == 2:  # several labels per text: the mean over them, as in their loss
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
                f"the training loss is no better than guessing: after {state.global_step} of {state.max_steps} steps "
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
