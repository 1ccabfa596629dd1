"""A worker as a process of its own: how it is started, stopped, and what became of it.

Imports next to nothing, because whatever supervises a worker, such as a Ray task, should be small beside it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rosewood.experiments.worker import FAILED, INTERRUPTED

LOG = "log.txt"
_PAUSE = 0.05
Process = subprocess.Popen[bytes]


def start(
    folder: Path, environment: dict[str, str], trusted: Sequence[str] = (), directory: Path | None = None
) -> Process:
    """A process that works on the cell in a folder; `trusted` are the models whose own code it may run."""
    with (folder / LOG).open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "rosewood.experiments.worker", str(folder), *trusted],
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
    """Variables for a process with that many threads; they must stand before it imports torch."""
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
