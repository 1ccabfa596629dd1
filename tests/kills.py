"""Kills a training run from outside, without a warning, and says what it was doing."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from rosewood.durable import UNFINISHED
from rosewood.training.checkpoint import checkpoints

Moment = Literal["training", "writing"]
PATIENCE = 120.0


def kill(pid: int, is_alive: Callable[[], bool], run: Path, moment: Moment, chance: random.Random) -> None:
    """SIGKILL a process that trains: some time after it has saved something new, or while it saves."""
    folder = run / "checkpoints"
    before = _newest(folder)
    wanted = before + chance.randint(1, 4)
    _wait(lambda: _newest(folder) > wanted or not is_alive())
    if moment == "writing":
        _wait(lambda: (folder / UNFINISHED).exists() or not is_alive())
        time.sleep(chance.uniform(0, 0.005))
    else:
        time.sleep(chance.uniform(0, 0.05))
    assert is_alive(), "the run was over before it could be killed: give it more steps"
    os.kill(pid, signal.SIGKILL)


def _newest(folder: Path) -> int:
    return max((int(path.name.rpartition("-")[2]) for path in checkpoints(folder)), default=0)


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.0005)
