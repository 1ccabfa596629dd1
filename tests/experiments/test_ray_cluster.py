"""Cells on an existing Ray cluster of two nodes, one of which goes away."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from rich.console import Console

from ray_cells import TRAINING, once_they_train, tables
from rosewood.experiments.compare import compare
from rosewood.experiments.engines.local import LocalEngine
from rosewood.experiments.engines.ray import RayEngine
from rosewood.experiments.grid import cells_of
from tiny_experiment import tiny_experiment, write_data

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


def taking_away(cluster: Any) -> Callable[[psutil.Process], None]:
    """The second node ends if the worker is on it; a worker on the first is left alone."""
    second = cluster.second.all_processes["raylet"][0].process.pid

    def take_away(worker: psutil.Process) -> None:
        if second in [parent.pid for parent in worker.parents()]:
            cluster.remove_node(cluster.second, allow_graceful=False)

    return take_away


@pytest.mark.slow
def test_a_cell_of_a_lost_node_goes_on_at_another(cluster: Any, tmp_path: Path) -> None:
    data = write_data(tmp_path / "data")
    experiment = tiny_experiment(tmp_path, recipes=["vanilla"], attacks=[], training=TRAINING)
    folders = [tmp_path / "ray" / cell.name for cell in cells_of(experiment, data)]
    compare(experiment, tmp_path / "local", data, LocalEngine(2), QUIET)
    with once_they_train(dict.fromkeys(folders, taking_away(cluster))):
        found = compare(experiment, tmp_path / "ray", data, RayEngine(address=cluster.address), QUIET)
    assert {cell.state for cell in found.cells} == {"finished"}
    assert sum("its Ray task was lost" in (folder / "log.txt").read_text() for folder in folders) == 1
    assert tables(tmp_path / "ray") == tables(tmp_path / "local")
