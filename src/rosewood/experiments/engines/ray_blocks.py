"""Blocks of an attack as tasks of a Ray cluster: the same examples as in one process, byte for byte."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from rosewood.attacks.runner.execute import Block, Tick, packed, run_block
from rosewood.attacks.runner.job import Campaign
from rosewood.errors import RunError
from rosewood.experiments.engines.ray import RayEngine, check_room, connected, reason, shared_variables, threads
from rosewood.tensors.distributed import together


@dataclass(frozen=True)
class RayBlocks(RayEngine):
    """As many blocks at a time as the cluster has room for, each with CPUs, and a GPU if there are any, of its own.

    What is attacked, and with what, is sent to the cluster once; nothing but the examples comes back. A block whose
    process dies is run again, `retries` times.
    """

    def blocks(self, campaign: Campaign, numbers: Sequence[int], deadline: float | None, tick: Tick) -> Iterator[Block]:
        """Run the blocks of these numbers; they come in the order in which they end."""
        if together():
            raise RunError("a Ray cluster has processes of its own: give the command once, without torchrun")
        if not numbers:
            return
        with connected(self.place) as ray:
            cpus = self.cpus or threads()
            gpus = 1 if ray.cluster_resources().get("GPU", 0) >= 1 else 0
            check_room(ray, {"CPU": cpus, "GPU": gpus})
            campaign.model.to("cpu")  # type: ignore[arg-type]  # a node need not have the devices of this machine
            sent = ray.put(packed(campaign))
            task = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=self.retries)(_work)
            # Clocks that count from the start of a machine differ between machines.
            ends = None if deadline is None else time.time() + deadline - time.monotonic()
            given = campaign.fingerprint, ends, cpus, shared_variables()
            pending = {task.remote(sent, number, *given): number for number in numbers}
            try:
                while pending:
                    for each in ray.wait(list(pending), timeout=1)[0]:
                        examples = _examples(ray, each)
                        for _ in examples:
                            tick()
                        yield Block(pending.pop(each), examples)
            finally:
                for each in pending:
                    ray.cancel(each, force=True)


def _examples(ray: Any, task: Any) -> list[Any]:
    try:
        found: list[Any] = ray.get(task)
        return found
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, Exception):
            raise error.cause from None
        raise
    except ray.exceptions.RayError as error:
        raise RunError(
            f"a block of the attack was lost: {reason(error)}. What was finished is kept: run the same again to go on."
        ) from None


_KNOWN: dict[str, Campaign] = {}
"""In a process of the cluster: what it attacks, which it unpacks once."""


def _work(
    sent: bytes, number: int, fingerprint: str, ends: float | None, cpus: int, variables: dict[str, str]
) -> list[Any]:
    os.environ.update(variables)
    torch.set_num_threads(cpus)
    if fingerprint not in _KNOWN:
        _KNOWN.clear()
        campaign: Campaign = pickle.loads(sent)
        if torch.accelerator.is_available():
            campaign.model.to(torch.accelerator.current_accelerator())  # type: ignore[arg-type]
        _KNOWN[fingerprint] = campaign
    deadline = None if ends is None else time.monotonic() + ends - time.time()
    return run_block(_KNOWN[fingerprint], number, deadline, lambda: None).examples
