"""Ctrl-C at any moment: everything ends, soon, and nothing is lost."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from rich.console import Console

from launcher import child
from rosewood.experiments.compare import compare
from rosewood.experiments.engines import local
from rosewood.experiments.engines.local import LocalEngine, held_back
from tiny_experiment import tiny_experiment, write_data

PATIENCE = 600
UNTIL_LEFT_ALONE = "import os\nwhile os.read(0, 1): pass"
QUIET = Console(quiet=True)


def hear() -> None:
    """What a shell starts in the background ignores Ctrl-C, this test runner perhaps, and whatever it starts."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def heard() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    hear()
    yield
    signal.signal(signal.SIGINT, before)


class Watched:
    """A lock of Popen that Ctrl-C meets just when it was taken, and that nobody waits for in vain."""

    def __init__(self) -> None:
        self._inner, self._met = threading.Lock(), False

    def acquire(self, blocking: bool = True) -> bool:
        taken = self._inner.acquire(False)
        assert taken or not blocking, "this would wait for ever"
        if taken and not self._met:
            self._met = True
            signal.raise_signal(signal.SIGINT)
        return taken

    def release(self) -> None:
        self._inner.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


def test_an_interruption_while_a_worker_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = subprocess.Popen([sys.executable, "-S", "-c", UNTIL_LEFT_ALONE], stdin=subprocess.PIPE)
    worker._waitpid_lock = Watched()  # type: ignore[attr-defined]
    monkeypatch.setattr(local, "start", lambda *_: worker)
    with pytest.raises(KeyboardInterrupt):
        list(LocalEngine().run([tmp_path]))
    assert worker.returncode == 0, "it was asked to end, and waited for"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_interruption_does_not_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"], stdin=subprocess.PIPE)
    monkeypatch.setattr(local, "start", lambda *_: worker)
    for seconds in (0.3, 0.6):
        threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        list(LocalEngine().run([tmp_path]))
    assert worker.returncode == -signal.SIGKILL


def test_a_signal_that_nobody_looked_for_is_raised_at_the_end() -> None:
    before = signal.getsignal(signal.SIGTERM)
    reached = []
    with pytest.raises(KeyboardInterrupt), held_back(signal.SIGINT, signal.SIGTERM):
        os.kill(os.getpid(), signal.SIGTERM)
        reached.append("the end")
    assert reached and signal.getsignal(signal.SIGTERM) is before


def interrupt_again_and_again(folder: Path, rounds: int) -> None:
    """Workers that do nothing, looked at without a pause: most interruptions come while one is started or polled."""
    hear()
    local._PAUSE = 0.0
    workers: list[subprocess.Popen[bytes]] = []

    def start(*_: Any) -> subprocess.Popen[bytes]:
        workers.append(subprocess.Popen([sys.executable, "-S", "-c", UNTIL_LEFT_ALONE], stdin=subprocess.PIPE))
        return workers[-1]

    local.start = start
    chance = random.Random(os.urandom(4).hex())
    for number in range(rounds):
        timer = threading.Timer(chance.uniform(0, 0.05), os.kill, (os.getpid(), signal.SIGINT))
        try:
            timer.start()
            list(LocalEngine(jobs=2).run([folder, folder]))
        except KeyboardInterrupt:
            pass
        else:
            raise AssertionError("workers do not end by themselves")
        assert all(worker.returncode is not None for worker in workers)
        (folder / "rounds").write_text(str(number + 1))


def test_fifty_interruptions_of_workers_that_do_nothing(tmp_path: Path) -> None:
    trial = child(interrupt_again_and_again, tmp_path, 50)
    trial.start()
    trial.join(PATIENCE)
    if trial.is_alive():
        trial.kill()
    assert (tmp_path / "rounds").read_text() == "50" and trial.exitcode == 0


def experiment(folder: Path) -> Any:
    return tiny_experiment(folder, recipes=["vanilla"], attacks=[], baseline=None)


def run_experiment(folder: Path, output: Path, begun: Path) -> None:
    hear()
    begun.touch()
    try:
        compare(experiment(folder), output, folder / "data", LocalEngine(jobs=2), QUIET)
    except KeyboardInterrupt:
        sys.exit(130)


def workers_of(output: Path) -> list[psutil.Process]:
    found = []
    for each in psutil.process_iter(["cmdline", "status"]):
        words = each.info["cmdline"] or []
        if "rosewood.experiments.engines.worker" in words and any(word.startswith(str(output)) for word in words):
            found.append(each)
    return found


def figures(output: Path) -> list[bytes]:
    return [(output / name).read_bytes() for name in ("table.csv", "table.md")]


@pytest.mark.slow
def test_fifty_interruptions_of_a_comparison(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At random moments, most of them while workers import: it ends, leaves no process, and goes on to the same end."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    write_data(tmp_path / "data")
    began = time.monotonic()
    compare(experiment(tmp_path), tmp_path / "whole", tmp_path / "data", LocalEngine(jobs=2), QUIET)
    takes, chance = time.monotonic() - began, random.Random(os.urandom(4).hex())
    output, ends = tmp_path / "interrupted", []
    for number in range(50):
        if (output / "table.csv").exists() and len(list(output.glob("*/result.json"))) == 2:
            shutil.rmtree(output)
        begun = tmp_path / f"begun-{number}"
        trial = child(run_experiment, tmp_path, output, begun)
        trial.start()
        while not begun.exists():
            time.sleep(0.001)
        trial.join(chance.uniform(0, takes))
        if trial.is_alive():
            os.kill(trial.pid or 0, signal.SIGINT)
        trial.join(PATIENCE)
        stuck = trial.is_alive()
        if stuck:
            trial.kill()
        assert not stuck, f"interruption {number + 1} left it waiting"
        assert not workers_of(output)
        ends.append(trial.exitcode)
    assert set(ends) <= {0, 130} and ends.count(130) > 25, ends
    compare(experiment(tmp_path), output, tmp_path / "data", LocalEngine(jobs=2), QUIET)
    assert figures(output) == figures(tmp_path / "whole")
