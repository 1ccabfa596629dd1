"""Run cells in processes of this machine, each in its own; what every engine must offer, and Ctrl-C that waits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Literal, NamedTuple, Protocol

import torch

from rosewood.errors import ExperimentError
from rosewood.experiments.engines.worker import FAILED, INTERRUPTED


class Event(NamedTuple):
    """Work on a cell has started or ended; its folder says how it went, unless the process was lost."""

    folder: Path
    what: Literal["started", "ended"]
    lost: str = ""
    """What became of a process that could not say it itself."""


class CellEngine(Protocol):
    """Local processes, or whatever else shares the file system."""

    def run(self, folders: Sequence[Path]) -> Iterator[Event]:
        """Have every cell worked on, and tell of each when it starts and ends.

        A failed cell does not stop the others. When the iterator is closed, or an exception such as KeyboardInterrupt
        passes through it, workers save what they have and end before it returns.
        """
        ...


LOG = "log.txt"
_PAUSE = 0.05
Process = subprocess.Popen[bytes]


def start(
    folder: Path, environment: dict[str, str], trusted: Sequence[str] = (), directory: Path | None = None
) -> Process:
    """A process that works on the cell in a folder; `trusted` are the models whose own code it may run."""
    with (folder / LOG).open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "rosewood.experiments.engines.worker", str(folder), *trusted],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env=environment,
            cwd=directory,
            start_new_session=True,  # Ctrl-C goes to this process alone, which then closes their standard input
        )


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def with_threads(environment: dict[str, str], threads: int | str) -> dict[str, str]:
    """Variables for a process with that many threads; they must be set before it imports torch."""
    return environment | {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads), "COLUMNS": "120"}


def stop(processes: Sequence[Process], check: Callable[[], None]) -> None:
    """Have workers save and end; a second Ctrl-C, which `check` raises, does not wait for it."""
    for process in processes:
        assert process.stdin is not None
        process.stdin.close()
    try:
        while any(process.poll() is None for process in processes):
            check()
            time.sleep(_PAUSE)
    except KeyboardInterrupt:
        for process in processes:
            process.kill()
            process.wait()
        raise


def how_lost(code: int) -> str:
    """Why a process ended, where it cannot have written that down itself."""
    if code in (0, FAILED, INTERRUPTED):
        return ""
    if code < 0:
        hint = ", perhaps because memory ran out" if -code == signal.SIGKILL else ""
        return f"its process was ended by {signal.Signals(-code).name}{hint}"
    return f"its process ended with exit code {code}"


@dataclass(frozen=True)
class LocalEngine:
    """`jobs` processes at a time, which share the cores (and the GPUs, one each) evenly.

    The figures do not depend on `jobs`, but in the last digits on the threads of a process: OMP_NUM_THREADS, where it
    is set, is that number, whatever `jobs`.
    """

    jobs: int = 1
    trusted: Sequence[str] = ()
    """Models whose own code workers may run."""

    def __post_init__(self) -> None:
        if self.jobs < 1:
            raise ExperimentError(f"jobs must be at least 1, got {self.jobs}")

    def run(self, folders: Sequence[Path]) -> Iterator[Event]:
        """Start a process whenever a place is free."""
        waiting, running = list(folders), dict[int, tuple[Path, Process]]()
        with held_back(signal.SIGINT, signal.SIGTERM) as check:
            try:
                while waiting or running:
                    for place in range(self.jobs):
                        if place not in running and waiting:
                            folder = waiting.pop(0)
                            running[place] = folder, start(folder, self.environment(place), self.trusted)
                            yield Event(folder, "started")
                    for place, (folder, worker) in list(running.items()):
                        if worker.poll() is not None:
                            del running[place]
                            yield Event(folder, "ended", how_lost(worker.returncode))
                    check()
                    time.sleep(_PAUSE)
            finally:
                stop([worker for _, worker in running.values()], check)

    def environment(self, place: int) -> dict[str, str]:
        """Variables for the process in a place; they must be set before it imports torch."""
        threads = os.environ.get("OMP_NUM_THREADS") or max(1, cores() // self.jobs)
        found = with_threads(dict(os.environ), threads)
        devices = _devices()
        return found | ({"CUDA_VISIBLE_DEVICES": devices[place % len(devices)]} if devices else {})


def _devices() -> list[str]:
    """Each process gets one: the Trainer would take all that it sees."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name for name in named.split(",") if name.strip()]
    return [str(number) for number in range(torch.cuda.device_count())]


@contextmanager
def held_back(*numbers: signal.Signals) -> Iterator[Callable[[], None]]:
    """Inside, these signals raise KeyboardInterrupt where the given function is called, and at the end.

    Python raises KeyboardInterrupt between any two instructions, also inside `subprocess`: `Popen.poll` may have taken
    the lock that `Popen.wait` needs and never give it back, which leaves a program waiting for a child that has long
    ended, and a child may run of which nobody has the `Popen` yet. Here nothing is left half done.

    Signals that are ignored stay ignored. Only the main thread gets any: elsewhere nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        came.append(number)

    def check() -> None:
        if came:
            came.clear()
            raise KeyboardInterrupt

    heard = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    previous = {number: signal.signal(number, note) for number in heard}
    try:
        yield check
        check()
    finally:
        for number, handler in previous.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
