"""Cells in processes: how many, with how many threads, and what becomes of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from patience import wait_until
from rosewood.errors import ExperimentError
from rosewood.experiments.compare import compare
from rosewood.experiments.engines import local
from rosewood.experiments.engines.local import LocalEngine
from rosewood.experiments.engines.worker import FAILED, INTERRUPTED
from rosewood.experiments.grid import cells_of
from tiny_experiment import tiny_experiment, write_data, write_experiment

FILES = ("results.json", "table.md", "table.tex", "table.csv")
QUIET = Console(quiet=True)


def test_processes_share_cores_and_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(local, "cores", lambda: 8)
    assert [LocalEngine(jobs).environment(0)["OMP_NUM_THREADS"] for jobs in (1, 3, 8, 20)] == ["8", "2", "1", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")
    devices = [LocalEngine(3).environment(place)["CUDA_VISIBLE_DEVICES"] for place in range(3)]
    assert devices == ["4", "6", "4"]
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert LocalEngine(3).environment(0)["OMP_NUM_THREADS"] == "5"
    with pytest.raises(ExperimentError, match="jobs must be at least 1, got 0"):
        LocalEngine(0)


def start_command(file: Path, output: Path, data: Path, jobs: int = 1) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "rosewood", "compare", file, "-o", output, "--data-dir", data, "--jobs", str(jobs)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "COLUMNS": "200"},
    )


def tables(output: Path) -> list[bytes]:
    return [(output / name).read_bytes() for name in FILES]


def wait_for(*paths: Path) -> None:
    wait_until(lambda: any(path.exists() for path in paths))


def test_a_process_that_could_not_say_why_it_ended_is_lost() -> None:
    assert [local.how_lost(code) for code in (0, FAILED, INTERRUPTED)] == ["", "", ""]
    assert local.how_lost(1) == "its process ended with exit code 1"  # Python's own, of an import that fails
    assert local.how_lost(-15) == "its process was ended by SIGTERM"


@pytest.mark.slow
def test_one_job_and_two_give_the_same_and_the_command_survives_two_kills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    data, file = write_data(tmp_path / "data"), write_experiment(tmp_path)
    compare(file, tmp_path / "one", data, LocalEngine(1), QUIET)
    compare(file, tmp_path / "two", data, LocalEngine(2), QUIET)
    assert tables(tmp_path / "two") == tables(tmp_path / "one")
    killed = tmp_path / "killed"
    names = [cell.name for cell in cells_of(tiny_experiment(tmp_path), data)]
    for number in (1, 4):
        process = start_command(file, killed, data)
        wait_for(killed / names[number] / "run" / "history.jsonl")
        process.kill()  # its worker notices, saves and ends; the next command waits for that
        assert process.wait() == -signal.SIGKILL
    process = start_command(file, killed, data, jobs=2)
    assert "6 of 6 cells are finished" in process.communicate()[0]
    assert process.returncode == 0
    assert tables(killed) == tables(tmp_path / "one")


@pytest.mark.slow
def test_ctrl_c_saves_and_says_how_to_go_on(tmp_path: Path) -> None:
    data = write_data(tmp_path / "data")
    training = {"max_steps": 3000, "per_device_train_batch_size": 4, "logging_steps": 1, "eval_strategy": "no"}
    file = write_experiment(tmp_path, recipes=["vanilla"], seeds=[0], training=training, attacks=[])
    process = start_command(file, tmp_path / "out", data)
    (cell,) = cells_of(tiny_experiment(tmp_path, recipes=["vanilla"], seeds=[0], training=training, attacks=[]), data)
    run = tmp_path / "out" / cell.name / "run"
    wait_for(run / "history.jsonl")
    process.send_signal(signal.SIGINT)
    printed, _ = process.communicate()
    assert process.returncode == 130
    assert f"Continue with: rosewood compare {file}" in printed
    assert list((run / "checkpoints").glob("checkpoint-*")), "the worker has saved"
    assert '"interrupted"' in (tmp_path / "out" / "results.json").read_text()


@pytest.mark.slow
def test_a_worker_that_is_killed_takes_only_its_cell(tmp_path: Path) -> None:
    data = write_data(tmp_path / "data")
    experiment = tiny_experiment(tmp_path, recipes=["vanilla"], attacks=[])

    class KillingTheFirst(LocalEngine):
        def run(self, folders):  # type: ignore[no-untyped-def]
            killed = False
            real = local.start

            def started(folder: Path, *given: Any) -> subprocess.Popen[bytes]:
                nonlocal killed
                worker = real(folder, *given)
                if not killed:
                    worker.kill()
                    killed = True
                return worker

            local.start = started
            try:
                yield from super().run(folders)
            finally:
                local.start = real

    comparison = compare(experiment, tmp_path / "out", data, KillingTheFirst(), QUIET)
    assert [cell.state for cell in comparison.cells] == ["failed", "finished"]
    assert comparison.cells[0].error is not None
    assert "its process was ended by SIGKILL, perhaps because memory ran out" in comparison.cells[0].error
