"""Kills a training run from outside, without a warning."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

from patience import wait_until
from rosewood.results.files import UNFINISHED
from rosewood.training.checkpoint import checkpoints

Moment = Literal["training", "writing"]


class Training(NamedTuple):
    """A process that trains, however it was started."""

    pid: int
    is_alive: Callable[[], bool]
    wait: Callable[[], int | None]


def kill_again_and_again(start: Callable[[], Training], run: Path, moments: list[Moment]) -> None:
    """Start the run, kill it, start it again, for each moment; a run that was too fast to be killed begins again."""
    chance = random.Random(os.urandom(4).hex())
    for _ in range(10):
        if all(_killed(start(), run / "checkpoints", moment, chance) for moment in moments):
            return
        shutil.rmtree(run)
    raise AssertionError("the run was always over before it could be killed: give it more steps")


def _killed(training: Training, folder: Path, moment: Moment, chance: random.Random) -> bool:
    """SIGKILL it some time after it has saved something new, or while it saves; whether that came in time."""
    wanted = _newest(folder) + chance.randint(1, 4)
    wait_until(lambda: _newest(folder) > wanted or not training.is_alive(), pause=0.0005)
    if moment == "writing":
        wait_until(lambda: (folder / UNFINISHED).exists() or not training.is_alive(), pause=0.0005)
        time.sleep(chance.uniform(0, 0.005))
    else:
        time.sleep(chance.uniform(0, 0.05))
    if training.is_alive():
        os.kill(training.pid, signal.SIGKILL)
    return training.wait() == -signal.SIGKILL


def _newest(folder: Path) -> int:
    return max((int(path.name.rpartition("-")[2]) for path in checkpoints(folder)), default=0)
