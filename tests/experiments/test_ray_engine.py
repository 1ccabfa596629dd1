"""Cells as Ray tasks: the same figures as local processes, whatever happens to workers."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from rich.console import Console

from ray_cells import TRAINING, once_they_train, tables, workers_on
from rosewood.errors import ExperimentError
from rosewood.experiments.compare import compare
from rosewood.experiments.engines import ray
from rosewood.experiments.engines.local import Event, LocalEngine
from rosewood.experiments.engines.ray import RayEngine
from rosewood.experiments.engines.worker import FAILED
from rosewood.experiments.grid import cells_of
from tiny_experiment import tiny_experiment, write_data

QUIET = Console(quiet=True)
BROKEN = {"recipe": "rose-second", "label": "broken", "training": {"optim": "adafactor"}}


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "find_spec", lambda name: None)
    with pytest.raises(ExperimentError, match=r"^the engine ray needs a package: pip install 'rosewood\[ray\]'$"):
        RayEngine()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cpus": 0}, "a cell needs at least one CPU, got 0"),
        ({"retries": -1}, "retries must be 0 or more, got -1"),
        ({"address": "ray://head:10001"}, "give the command on a node of the cluster, with --ray-address auto"),
    ],
)
def test_what_cannot_work_is_refused_at_once(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ExperimentError, match=message):
        RayEngine(**settings)


def test_threads_are_those_of_omp_or_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert ray.threads() == 3
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert ray.threads() == 1


class LostError(Exception):
    """What Ray raises for a task whose process is gone."""


class Scripted:
    """A cluster whose tasks are lists of what they yield; an exception means a lost process."""

    exceptions = SimpleNamespace(RayError=LostError)

    def __init__(self, script: dict[str, list[list[Any]]]) -> None:
        self.script, self.submitted, self.cancelled = script, list[str](), list[Any]()

    def submit(self, folder: Path) -> Iterator[Any]:
        self.submitted.append(folder.name)
        return iter(self.script[folder.name].pop(0))

    def wait(self, streams: list[Any], timeout: float) -> tuple[list[Any], list[Any]]:
        return streams[:1], streams[1:]

    def get(self, value: Any) -> Any:
        if isinstance(value, LostError):
            raise value
        return value

    def cancel(self, stream: Any) -> None:
        self.cancelled.append(stream)


def scripted(folder: Path, retries: int, **script: list[list[Any]]) -> tuple[Scripted, Iterator[Event]]:
    cluster = Scripted(script)
    folders = [folder / name for name in script]
    for each in folders:
        each.mkdir()
    return cluster, ray._Cells(cluster, cluster.submit, retries).run(folders)


def test_a_lost_cell_is_tried_again_so_often_and_no_more(tmp_path: Path) -> None:
    dead = LostError("The worker died.")
    cluster, events = scripted(tmp_path, 2, bad=[[None, -9], [dead], [None, dead]], good=[[None, -9], [None, 0]])
    found = [(event.folder.name, event.what, event.lost) for event in events]
    lost = "its Ray task was lost (LostError: The worker died.), attempt 3 of 3"
    assert sorted(found) == sorted(
        [("bad", "started", ""), ("bad", "ended", lost), ("good", "started", ""), ("good", "ended", "")]
    )
    assert sorted(cluster.submitted) == ["bad"] * 3 + ["good"] * 2
    log = (tmp_path / "bad" / "log.txt").read_text()
    assert "its process was ended by SIGKILL, perhaps because memory ran out; retry 1 of 2" in log
    assert "retry 2 of 2" in log


def test_a_cell_that_fails_by_itself_is_not_tried_again(tmp_path: Path) -> None:
    cluster, events = scripted(tmp_path, 3, bad=[[None, FAILED]])
    assert [(event.what, event.lost) for event in events] == [("started", ""), ("ended", "")]
    assert cluster.submitted == ["bad"]


def test_closing_cancels_what_is_under_way(tmp_path: Path) -> None:
    cluster, events = scripted(tmp_path, 3, one=[[None, 130]], two=[[None, 130]])
    assert next(events).what == "started"
    events.close()  # type: ignore[attr-defined]
    assert len(cluster.cancelled) == 2


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Started once: seconds, more on a busy machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        with ray.connected("local") as cluster:
            yield cluster


def predictions(output: Path) -> dict[str, bytes]:
    return {str(file.relative_to(output)): file.read_bytes() for file in output.glob("*/run/predictions*.parquet")}


def kill_task(worker: psutil.Process) -> None:
    """SIGKILL for the Ray task that supervises a worker."""
    worker.parent().kill()  # type: ignore[union-attr]


@pytest.mark.slow
def test_figures_are_those_of_local_processes_also_after_kills(cluster: Any, tmp_path: Path) -> None:
    data = write_data(tmp_path / "data")
    experiment = tiny_experiment(tmp_path, recipes=["vanilla", BROKEN], attacks=[], training=TRAINING)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        compare(experiment, tmp_path / "local", data, LocalEngine(2), QUIET)
        cells = [cell.name for cell in cells_of(experiment, data) if cell.label == "vanilla"]
        folders = [tmp_path / "ray" / name for name in cells]
        with once_they_train(dict(zip(folders, (psutil.Process.kill, kill_task), strict=True))):
            found = compare(experiment, tmp_path / "ray", data, RayEngine(), QUIET)
    assert [cell.state for cell in found.cells] == ["finished", "finished", "failed", "failed"]
    assert tables(tmp_path / "ray") == tables(tmp_path / "local")
    assert predictions(tmp_path / "ray") == predictions(tmp_path / "local")
    logs = [(tmp_path / "ray" / name / "log.txt").read_text() for name in cells]
    assert "ended by SIGKILL, perhaps because memory ran out; retry 1 of 3" in logs[0]
    assert "its Ray task was lost (WorkerCrashedError" in logs[1] and "retry 1 of 3" in logs[1]


@pytest.mark.slow
def test_ctrl_c_lets_workers_save_and_end(cluster: Any, tmp_path: Path) -> None:
    data = write_data(tmp_path / "data")
    training = {"max_steps": 3000, "per_device_train_batch_size": 4, "logging_steps": 1, "eval_strategy": "no"}
    experiment = tiny_experiment(tmp_path, recipes=["vanilla"], seeds=[0], attacks=[], training=training)
    (cell,) = cells_of(experiment, data)
    folder = tmp_path / "out" / cell.name

    def press() -> None:
        while not (folder / "run" / "history.jsonl").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        compare(experiment, tmp_path / "out", data, RayEngine(cpus=1), QUIET)
    assert not workers_on(folder)
    assert list((folder / "run" / "checkpoints").glob("checkpoint-*")), "the worker has saved"
    assert '"interrupted"' in (tmp_path / "out" / "results.json").read_text()


@pytest.mark.slow
def test_a_cell_that_fits_no_node_is_refused(cluster: Any, tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match=r"a cell takes 4096 CPU, and the largest node of the cluster has"):
        next(RayEngine(cpus=4096).run([tmp_path]))
