"""Cells in processes of this machine, each in one of its own."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from rosewood.errors import ExperimentError
from rosewood.experiments import process
from rosewood.experiments.engine import Event
from rosewood.experiments.interrupts import held_back

_PAUSE = 0.05


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
        waiting, running = list(folders), dict[int, tuple[Path, process.Process]]()
        with held_back(signal.SIGINT, signal.SIGTERM) as check:
            try:
                while waiting or running:
                    for place in range(self.jobs):
                        if place not in running and waiting:
                            folder = waiting.pop(0)
                            running[place] = folder, process.start(folder, self.environment(place), self.trusted)
                            yield Event(folder, "started")
                    for place, (folder, worker) in list(running.items()):
                        if worker.poll() is not None:
                            del running[place]
                            yield Event(folder, "ended", process.how_lost(worker.returncode))
                    check()
                    time.sleep(_PAUSE)
            finally:
                process.stop([worker for _, worker in running.values()], check)

    def environment(self, place: int, devices: Sequence[str] | None = None) -> dict[str, str]:
        """Variables for the process in a place; they must stand before it imports torch."""
        threads = os.environ.get("OMP_NUM_THREADS") or max(1, process.cores() // self.jobs)
        found = process.with_threads(dict(os.environ), threads)
        devices = _devices() if devices is None else devices
        return found | ({"CUDA_VISIBLE_DEVICES": devices[place % len(devices)]} if devices else {})


def _devices() -> list[str]:
    """Each process gets one: the Trainer would take all that it sees."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name for name in named.split(",") if name.strip()]
    return [str(number) for number in range(torch.cuda.device_count())]
