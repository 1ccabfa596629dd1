"""Cells in processes of this machine, each in one of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from rosewood.errors import ExperimentError
from rosewood.experiments.cell import LOG
from rosewood.experiments.engine import Event
from rosewood.experiments.worker import INTERRUPTED

_PAUSE = 0.05
Process = subprocess.Popen[bytes]


@dataclass(frozen=True)
class LocalEngine:
    """`jobs` processes at a time, which share the cores (and the GPUs, one each) evenly.

    The figures do not depend on `jobs`, but in the last digits on the threads of a process: OMP_NUM_THREADS, where it
    is set, is that number, whatever `jobs`.
    """

    jobs: int = 1

    def __post_init__(self) -> None:
        if self.jobs < 1:
            raise ExperimentError(f"jobs must be at least 1, got {self.jobs}")

    def run(self, folders: Sequence[Path]) -> Iterator[Event]:
        """Start a process whenever a place is free."""
        waiting, running = list(folders), dict[int, tuple[Path, Process]]()
        try:
            while waiting or running:
                for place in range(self.jobs):
                    if place not in running and waiting:
                        folder = waiting.pop(0)
                        running[place] = folder, _started(folder, self.environment(place))
                        yield Event(folder, "started")
                for place, (folder, process) in list(running.items()):
                    if process.poll() is not None:
                        del running[place]
                        yield Event(folder, "ended", _lost(process.returncode))
                time.sleep(_PAUSE)
        finally:
            _stop([process for _, process in running.values()])

    def environment(self, place: int, devices: Sequence[str] | None = None) -> dict[str, str]:
        """Variables for the process in a place; they must stand before it imports torch."""
        threads = os.environ.get("OMP_NUM_THREADS") or str(max(1, _cores() // self.jobs))
        found = os.environ | {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "COLUMNS": "120"}
        devices = _devices() if devices is None else devices
        return found | ({"CUDA_VISIBLE_DEVICES": devices[place % len(devices)]} if devices else {})


def _cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _devices() -> list[str]:
    """Each process gets one: the Trainer would take all that it sees."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name for name in named.split(",") if name.strip()]
    return [str(number) for number in range(torch.cuda.device_count())]


def _started(folder: Path, environment: dict[str, str]) -> Process:
    with (folder / LOG).open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "rosewood.experiments.worker", str(folder)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,  # Ctrl-C goes to this process alone, which then closes their standard input
        )


def _stop(processes: Sequence[Process]) -> None:
    """Have workers save and end; a second Ctrl-C does not wait for it."""
    for process in processes:
        assert process.stdin is not None
        process.stdin.close()
    try:
        for process in processes:
            process.wait()
    except KeyboardInterrupt:
        for process in processes:
            process.kill()
        raise


def _lost(code: int) -> str:
    """Why a process ended, where it cannot have written that down itself."""
    if code in (0, 1, INTERRUPTED):
        return ""
    if code < 0:
        hint = ", perhaps because memory ran out" if -code == signal.SIGKILL else ""
        return f"its process was ended by {signal.Signals(-code).name}{hint}"
    return f"its process ended with exit code {code}"
