"""Blocks of a campaign, run in this process or in several; the outcome is the same."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from queue import Empty
from typing import Any, NamedTuple

import torch

from rosewood.attacks.search.campaign import Campaign
from rosewood.errors import RosewoodError, RunError
from rosewood.results import AttackedExample

Tick = Callable[[], object]
"""Called whenever an example is over."""


class Block(NamedTuple):
    """A block and what became of its examples; time may have run out before all, or any, were begun."""

    number: int
    examples: list[AttackedExample]


def run_blocks(
    campaign: Campaign, numbers: Sequence[int], jobs: int, deadline: float | None, tick: Tick
) -> Iterator[Block]:
    """Run the blocks of these numbers in so many processes; they come in the order in which they end."""
    jobs = min(jobs, len(numbers))
    if jobs > 1:
        return _in_processes(campaign, numbers, jobs, deadline, tick)
    return (_run(campaign, number, deadline, tick) for number in numbers)


def _run(campaign: Campaign, number: int, deadline: float | None, tick: Tick) -> Block:
    examples = []
    for example in campaign.records(campaign.blocks[number], deadline):
        examples.append(example)
        tick()
    return Block(number, examples)


def _in_processes(
    campaign: Campaign, numbers: Sequence[int], jobs: int, deadline: float | None, tick: Tick
) -> Iterator[Block]:
    context = multiprocessing.get_context("spawn")
    results, taken = context.Queue(), context.Value("q", 0)
    threads = max(1, torch.get_num_threads() // jobs)
    # As plain bytes: torch would send tensors through shared memory, of which containers often have little.
    packed = _packed(campaign)
    workers = [
        context.Process(target=_work, args=(packed, numbers, taken, deadline, threads, results), daemon=True)
        for _ in range(jobs)
    ]
    try:
        for worker in workers:
            worker.start()
        missing = len(numbers)
        while missing:
            message = _next(results, workers)
            if isinstance(message, RosewoodError):
                raise message
            if isinstance(message, Block):
                missing -= 1
                yield message
            else:
                tick()
        for worker in workers:
            worker.join()
    finally:
        for worker in workers:
            if worker.is_alive():
                worker.kill()


def _packed(campaign: Campaign) -> bytes:
    try:
        return pickle.dumps(campaign)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise RunError(
            f"the attack, or something it was given, cannot be sent to other processes: {error}. "
            "Define functions and classes at the top of a module, or take jobs=1."
        ) from None


def _next(results: Any, workers: Sequence[Any]) -> Any:
    while True:
        # Asked before the queue: what a process put there before it ended is then found.
        ended = [worker.exitcode for worker in workers if worker.exitcode]
        try:
            return results.get(timeout=0 if ended else 1)
        except Empty:
            if ended:
                raise RunError(
                    f"a process of the attack ended with exit code {ended[0]}"
                    f"{' (out of memory?)' if ended[0] == -signal.SIGKILL else ''}. What was finished is kept: "
                    "run the same again to go on, perhaps with fewer jobs."
                ) from None


def _work(
    packed: bytes, numbers: Sequence[int], taken: Any, deadline: float | None, threads: int, results: Any
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the first one ends the others
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    campaign: Campaign = pickle.loads(packed)
    while True:
        with taken.get_lock():
            place, taken.value = taken.value, taken.value + 1
        if place >= len(numbers):
            return
        try:
            results.put(_run(campaign, numbers[place], deadline, lambda: results.put(None)))
        except RosewoodError as error:
            results.put(error)
            return


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
