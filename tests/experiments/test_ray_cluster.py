"""Cells on an existing Ray cluster of two nodes, one of which goes away."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from rich.console import Console

from rosewood.experiments.compare import compare
from rosewood.experiments.grid import cells_of
from rosewood.experiments.local import LocalEngine
from rosewood.experiments.ray_engine import RayEngine
from tiny_experiment import tiny_experiment, write_data

FILES = ("results.json", "table.md", "table.tex", "table.csv")
QUIET = Console(quiet=True)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A head and a second node with one CPU each, as separate sets of Ray's processes."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    memory = {"num_cpus": 1, "object_store_memory": 100 * 2**20}
    made = Cluster(initialize_head=True, head_node_args={**memory, "include_dashboard": False})
    made.second = made.add_node(**memory)
    yield made
    made.shutdown()


def supervised_by(node: Any, folder: Path) -> bool:
    """Whether the process that works on a cell descends from a node's raylet."""
    raylet = node.all_processes["raylet"][0].process.pid
    return any(
        raylet in [parent.pid for parent in process.parents()]
        for process in psutil.process_iter(["cmdline"])
        if str(folder) in (process.info["cmdline"] or []) and "-m" in process.info["cmdline"]
    )


def take_away_once_it_trains(cluster: Any, folders: list[Path]) -> threading.Thread:
    """The second node ends as soon as a cell on it has a checkpoint."""

    def take_away() -> None:
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline:
            for folder in folders:
                if list(folder.glob("run/checkpoints/checkpoint-*")) and supervised_by(cluster.second, folder):
                    cluster.remove_node(cluster.second, allow_graceful=False)
                    return
            time.sleep(0.01)

    thread = threading.Thread(target=take_away)
    thread.start()
    return thread


@pytest.mark.slow
def test_a_cell_of_a_lost_node_goes_on_at_another(cluster: Any, tmp_path: Path) -> None:
    data = write_data(tmp_path / "data")
    training = {"max_steps": 60, "per_device_train_batch_size": 4, "save_strategy": "steps", "save_steps": 4}
    experiment = tiny_experiment(tmp_path, recipes=["vanilla"], attacks=[], training=training)
    folders = [tmp_path / "ray" / cell.name for cell in cells_of(experiment, data)]
    compare(experiment, tmp_path / "local", data, LocalEngine(2), QUIET)
    thief = take_away_once_it_trains(cluster, folders)
    found = compare(experiment, tmp_path / "ray", data, RayEngine(address=cluster.address), QUIET)
    thief.join()
    assert {cell.state for cell in found.cells} == {"finished"}
    assert sum("its Ray task was lost" in (folder / "log.txt").read_text() for folder in folders) == 1
    assert [(tmp_path / "ray" / name).read_bytes() for name in FILES] == [
        (tmp_path / "local" / name).read_bytes() for name in FILES
    ]
