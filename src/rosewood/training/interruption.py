"""Ctrl-C, or a cluster's SIGTERM, ends a run after the current step and leaves a checkpoint to continue from."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType
from typing import Any

import torch
from transformers import TrainerCallback

from rosewood.tensors.distributed import anywhere


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
