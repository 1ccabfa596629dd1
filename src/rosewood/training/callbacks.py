"""Callbacks of a run: a progress bar, Ctrl-C that leaves a checkpoint, robust accuracy after every epoch, reporting."""

from __future__ import annotations

import signal
import threading
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from datasets import Dataset
from rich import get_console
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from transformers import PreTrainedTokenizerBase, TrainerCallback
from transformers.integrations import integration_utils as integrations

from rosewood.attacks.runner.api import robust_accuracy
from rosewood.attacks.runner.attack import Attack
from rosewood.errors import RunError, closest
from rosewood.tensors.distributed import anywhere
from rosewood.training.health import guesses
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
