"""A progress bar for training that shows what matters: loss, kept share, validation accuracy."""

from __future__ import annotations

from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from transformers import TrainerCallback

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
        """Leave the bar as it stands, also when training ended by an exception."""
        self._bar.stop()
