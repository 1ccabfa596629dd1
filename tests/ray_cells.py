"""Cells of an experiment as processes that a test can find, and interfere with while they train."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
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


@contextmanager
def once_they_train(interferences: Mapping[Path, Callable[[psutil.Process], None]]) -> Iterator[None]:
    """Meanwhile, interfere with the worker of each folder as soon as it has a checkpoint."""
    over = threading.Event()

    def watch() -> None:
        todo = dict(interferences)
        while todo and not over.wait(0.005):
            for folder, interfere in list(todo.items()):
                running = workers_on(folder) if list(folder.glob("run/checkpoints/checkpoint-*")) else []
                if running:
                    interfere(running[0])
                    del todo[folder]

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
