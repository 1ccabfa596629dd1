"""Cells of an experiment, and blocks of an attack, as tasks of a Ray cluster that shares the file system."""

from __future__ import annotations

import logging
import os
import pickle
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from rosewood.attacks.runner.execute import Block, Tick, packed, run_block
from rosewood.attacks.runner.job import Campaign
from rosewood.errors import ExperimentError, RunError
from rosewood.experiments.engines import local
from rosewood.experiments.engines.local import Event, held_back
from rosewood.tensors.shards import together

LOCAL = "local"
_PAUSE = 0.05
_OBJECT_STORE = 100 * 2**20  # tasks send each other next to nothing


@dataclass(frozen=True)
class RayEngine:
    """As many cells at a time as the cluster has room for; a cell has as many threads as CPUs.

    `address` is that of an existing cluster ("auto": the one on this machine), else RAY_ADDRESS, else "local": one that
    is started on this machine and shut down at the end. `cpus` is by default OMP_NUM_THREADS, else 1. A cell whose
    process dies goes on from its checkpoint, `retries` times.
    """

    address: str | None = None
    cpus: int | None = None
    retries: int = 3
    trusted: Sequence[str] = ()
    """Models whose own code workers may run."""

    def __post_init__(self) -> None:
        if find_spec("ray") is None:
            raise ExperimentError("the engine ray needs a package: pip install 'rosewood[ray]'")
        if self.cpus is not None and self.cpus < 1:
            raise ExperimentError(f"a cell needs at least one CPU, got {self.cpus}")
        if self.retries < 0:
            raise ExperimentError(f"retries must be 0 or more, got {self.retries}")
        if self.place.startswith("ray://"):
            raise ExperimentError(
                f"{self.place} is an address for clients, which need not share the cluster's files: give the "
                "command on a node of the cluster, with --ray-address auto"
            )

    @property
    def place(self) -> str:
        """The address of the cluster, or `local`."""
        return self.address or os.environ.get("RAY_ADDRESS") or LOCAL

    def run(self, folders: Sequence[Path]) -> Iterator[Event]:
        """Give all cells to the cluster, which starts them as it has room."""
        if not folders:
            return
        with connected(self.place) as ray:
            cpus = self.cpus or threads()
            gpus = 1 if ray.cluster_resources().get("GPU", 0) >= 1 else 0
            check_room(ray, {"CPU": cpus, "GPU": gpus})
            # Attempts are counted here: Ray itself would retry what ran out of memory for ever.
            task = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=0)(_run_cell)
            given = local.with_threads(shared_variables(), cpus), self.trusted, Path.cwd()
            yield from _Cells(ray, lambda folder: task.remote(folder.resolve(), *given), self.retries).run(folders)


def shared_variables() -> dict[str, str]:
    """Where data and models are found, which the nodes of a cluster cannot know."""
    return {name: value for name, value in os.environ.items() if name.startswith(("HF_", "ROSEWOOD_"))}


def _run_cell(folder: Path, variables: dict[str, str], trusted: Sequence[str], directory: Path) -> Iterator[int | None]:
    """On a node of the cluster: None when work begins, then the exit code of the cell's process.

    The process is the same as without Ray, and ends by itself, having saved, when this one is gone.
    """
    with held_back(signal.SIGINT) as check:  # as which Ray's cancellations come
        worker = local.start(folder, os.environ | variables, trusted, directory)
        try:
            yield None
            while worker.poll() is None:
                check()
                time.sleep(_PAUSE)
        finally:
            local.stop([worker], check)
    yield worker.returncode


class _Cells:
    """Cells under way, each a stream of what `_run_cell` yields."""

    def __init__(self, ray: Any, submit: Callable[[Path], Any], retries: int) -> None:
        self._ray, self._submit, self._retries = ray, submit, retries
        self._streams: dict[Any, Path] = {}
        self._begun: set[Path] = set()
        self._losses: dict[Path, int] = {}

    def run(self, folders: Sequence[Path]) -> Iterator[Event]:
        try:
            self._streams = {self._submit(folder): folder for folder in folders}
            while self._streams:
                for stream in self._ray.wait(list(self._streams), timeout=1)[0]:
                    yield from self._news(stream)
        finally:
            self._stop()

    def _news(self, stream: Any) -> Iterator[Event]:
        folder = self._streams[stream]
        try:
            code = self._ray.get(next(stream))
            lost = "" if code is None else local.how_lost(code)
        except self._ray.exceptions.RayError as error:
            code, lost = -1, reason(error)
        if folder not in self._begun:
            self._begun.add(folder)
            yield Event(folder, "started")
        if code is None:
            return
        del self._streams[stream]
        if lost and self._losses.get(folder, 0) < self._retries:
            self._again(folder, lost)
        else:
            yield Event(
                folder, "ended", lost and f"{lost}, attempt {self._losses.get(folder, 0) + 1} of {self._retries + 1}"
            )

    def _again(self, folder: Path, lost: str) -> None:
        self._losses[folder] = self._losses.get(folder, 0) + 1
        with (folder / local.LOG).open("a", encoding="utf-8") as log:
            log.write(f"\n{lost}; retry {self._losses[folder]} of {self._retries}\n")
        self._streams[self._submit(folder)] = folder

    def _stop(self) -> None:
        """Have workers save and end, and wait until they have."""
        for stream in self._streams:
            self._ray.cancel(stream)
        for stream in self._streams:
            with suppress(self._ray.exceptions.RayError, StopIteration):
                while True:
                    self._ray.get(next(stream))


def reason(error: Exception) -> str:
    """What became of a task whose own process, or machine, is gone."""
    first = str(error).strip().splitlines()[0] if str(error).strip() else ""
    return f"its Ray task was lost ({type(error).__name__}: {first})"


def threads() -> int:
    """OMP_NUM_THREADS of this process, or one, Ray's own default."""
    named = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, int(named)) if named.isdigit() else 1


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """Ray, connected to a cluster; what was begun here is ended here."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray

    if ray.is_initialized():
        yield ray
        return
    settings: dict[str, Any] = {"address": address, "log_to_driver": False, "logging_level": logging.ERROR}
    if address == LOCAL:
        settings |= {"num_cpus": local.cores(), "include_dashboard": False, "object_store_memory": _OBJECT_STORE}
    try:
        ray.init(**settings)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise ExperimentError(
            f"no Ray cluster answers at {address} ({error}): check --ray-address and RAY_ADDRESS, or use "
            "--ray-address local"
        ) from None
    try:
        yield ray
    finally:
        ray.shutdown()


def check_room(ray: Any, wanted: dict[str, int]) -> None:
    """A task that no node can ever take would wait without a word."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if not any(all(node.get(name, 0) >= count for name, count in wanted.items()) for node in nodes):
        has = max((int(node.get("CPU", 0)) for node in nodes), default=0)
        what = " and ".join(f"{count} {name}" for name, count in wanted.items() if count)
        raise ExperimentError(f"a cell takes {what}, and the largest node of the cluster has {has} CPUs: lower --cpus")


@dataclass(frozen=True)
class RayBlocks(RayEngine):
    """As many blocks at a time as the cluster has room for, each with CPUs, and a GPU if there are any, of its own.

    What is attacked, and with what, is sent to the cluster once; nothing but the examples comes back. A block whose
    process dies is run again, `retries` times.
    """

    def blocks(self, campaign: Campaign, numbers: Sequence[int], deadline: float | None, tick: Tick) -> Iterator[Block]:
        """Run the blocks of these numbers; they come in the order in which they end."""
        if together():
            raise RunError("a Ray cluster has processes of its own: run the command once, without torchrun")
        if not numbers:
            return
        with connected(self.place) as ray:
            cpus = self.cpus or threads()
            gpus = 1 if ray.cluster_resources().get("GPU", 0) >= 1 else 0
            check_room(ray, {"CPU": cpus, "GPU": gpus})
            campaign.model.to("cpu")  # type: ignore[arg-type]  # a node need not have the devices of this machine
            sent = ray.put(packed(campaign))
            task = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=self.retries)(_attack_block)
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
            f"a block of the attack was lost: {reason(error)}. Finished work is kept: "
            "run the same command again to continue."
        ) from None


_KNOWN: dict[str, Campaign] = {}
"""In a process of the cluster: what it attacks, which it unpacks once."""


def _attack_block(
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
