"""Processes for tests, forked from one that has imported what they need and has no threads.

A fork of the test runner itself would be as fast, but copies memory that its threads may be changing at that moment:
now and then such a child dies of a damaged heap.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
from collections.abc import Callable
from multiprocessing import forkserver
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from accelerate.utils import memory
from transformers import PrinterCallback
from transformers.utils import logging

_ONE_THREAD = {  # of OpenBLAS, and none of Arrow's allocator, which both start theirs when they are imported
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(
    [
        "pytest",
        "rosewood.experiments.run_cell",
        "torch.distributed.fsdp",
        "transformers.models.bert.modeling_bert",
        "transformers.models.bert.tokenization_bert",
    ]
)


def child(target: Callable[..., Any], *args: Any) -> Any:
    """A process, not yet started, that runs a function of some module; it says nothing."""
    _start()
    return _context.Process(target=_quietly, args=(target, args))


def _start() -> None:
    with patch.dict(os.environ, _ONE_THREAD):
        forkserver.ensure_running()


def without_collections() -> None:
    """Every train() begins with a full garbage collection, most of its time on a tiny model. Python collects anyway."""
    memory.gc = SimpleNamespace(collect=lambda: 0)  # type: ignore[attr-defined]


def _quietly(target: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """As conftest.py sets up the test runner."""
    without_collections()
    gc.freeze()  # what is imported needs no look at any collection, and stays in the memory that all forks share
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    PrinterCallback.on_log = lambda *args, **kwargs: None  # type: ignore[method-assign]
    with Path(os.devnull).open("w") as nothing:
        os.dup2(nothing.fileno(), 1)
        os.dup2(nothing.fileno(), 2)
    target(*args)


def threads_of_the_forked() -> int:
    """How many threads the process has that all children are forks of."""
    _start()
    return len(list(Path(f"/proc/{forkserver._forkserver._forkserver_pid}/task").iterdir()))  # type: ignore[attr-defined]
