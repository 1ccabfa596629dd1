"""Runs a function in two processes that can talk to each other, as torchrun would."""

from __future__ import annotations

import os
import socket
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate.state import AcceleratorState, GradientState, PartialState
from torch import distributed

from launcher import child
from patience import wait_until


def asked_for(request: pytest.FixtureRequest, parameter: str) -> list[str]:
    """The values of a parameter for which tests of the fixture's module were chosen."""
    chosen = [item for item in request.session.items if item.path == request.path]
    return list(dict.fromkeys(str(item.callspec.params[parameter]) for item in chosen))  # type: ignore[attr-defined]


def in_two_processes(function: Callable[..., Any], folder: Path, *args: Any) -> list[Any]:
    """What `function(rank, *args)` returns on rank 0 and on rank 1; it must be tensors in plain containers."""
    port = _free_port()
    workers = [child(_work, function, rank, port, folder, args) for rank in range(2)]
    for worker in workers:
        worker.start()
    try:
        wait_until(lambda: any(each.exitcode for each in workers) or not any(each.is_alive() for each in workers))
    finally:
        for worker in workers:
            worker.kill()  # one that waits for an answer of the other
            worker.join()
    for rank in range(2):
        trouble = folder / f"{rank}.txt"
        assert not trouble.exists(), trouble.read_text()
    assert [worker.exitcode for worker in workers] == [0, 0]
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
