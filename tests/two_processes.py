"""Runs a function in two processes that can talk to each other, as torchrun would."""

from __future__ import annotations

import os
import socket
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from accelerate.state import AcceleratorState, GradientState, PartialState
from torch import distributed

from launcher import child

PATIENCE = 300


def in_two_processes(function: Callable[..., Any], folder: Path, *args: Any) -> list[Any]:
    """What `function(rank, *args)` returns on rank 0 and on rank 1; it must be tensors in plain containers."""
    port = _free_port()
    workers = [child(_work, function, rank, port, folder, args) for rank in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(PATIENCE)
    for rank, worker in enumerate(workers):
        if worker.is_alive():
            worker.kill()
        trouble = folder / f"{rank}.txt"
        assert worker.exitcode == 0, trouble.read_text() if trouble.exists() else f"rank {rank}: {worker.exitcode}"
    return [torch.load(folder / f"{rank}.pt") for rank in range(2)]


def _work(function: Callable[..., Any], rank: int, port: int, folder: Path, args: tuple[Any, ...]) -> None:
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "ACCELERATE_USE_CPU": "true",
    }
    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()
    try:
        torch.save(function(rank, *args), folder / f"{rank}.pt")
        if distributed.is_initialized():
            distributed.destroy_process_group()
    except BaseException:
        (folder / f"{rank}.txt").write_text(traceback.format_exc())
        os._exit(1)
    os._exit(0)  # not through the test runner's own clean-up


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
