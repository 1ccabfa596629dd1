"""Cells of an experiment as processes that a test can find, and interfere with while they train."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

FILES = ("results.json", "table.md", "table.tex", "table.csv")
TRAINING: dict[str, Any] = {
    **{"max_steps": 60, "per_device_train_batch_size": 4},
    **{"save_strategy": "steps", "save_steps": 4},
}
"""Long enough to be interfered with, and saved often."""


def tables(output: Path) -> list[bytes]:
    return [(output / name).read_bytes() for name in FILES]


def workers_on(folder: Path) -> list[psutil.Process]:
    found = psutil.process_iter(["cmdline"])
    return [each for each in found if str(folder) in (each.info["cmdline"] or []) and "-m" in each.info["cmdline"]]


def once_it_trains(folder: Path, interfere: Callable[[psutil.Process], bool]) -> threading.Thread:
    """Call `interfere` with the worker, as soon as it has a checkpoint, until it has been done."""

    def watch() -> None:
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline:
            running = workers_on(folder)
            if running and list(folder.glob("run/checkpoints/checkpoint-*")) and interfere(running[0]):
                return
            time.sleep(0.005)

    thread = threading.Thread(target=watch)
    thread.start()
    return thread
