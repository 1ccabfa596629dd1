"""Two workers on one study in PostgreSQL: a private server on this machine, where its programs are installed."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from rosewood.experiments.tuning.study import Trials
from tiny_tuning import Place

SECRET = "not-to-be-seen"


def program(name: str) -> Path | None:
    """In the PATH, or where Debian keeps it."""
    found = [*Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), *filter(None, [shutil.which(name)])]
    return Path(found[-1]) if found else None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until_it_answers(url: str, server: subprocess.Popen[bytes]) -> None:
    import psycopg

    deadline = time.monotonic() + 120
    while True:
        try:
            psycopg.connect(url).close()
            return
        except psycopg.OperationalError:
            assert server.poll() is None and time.monotonic() < deadline, "the server did not start"
            time.sleep(0.1)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The URL of an empty database, with a password in it."""
    initdb, postgres = program("initdb"), program("postgres")
    if initdb is None or postgres is None:
        pytest.skip("PostgreSQL's initdb and postgres are not installed")
    pytest.importorskip("psycopg")
    user: dict[str, Any] = {"user": "nobody"} if os.getuid() == 0 else {}  # the server refuses to run as root
    with TemporaryDirectory(dir="/tmp") as name:
        folder, port = Path(name), free_port()
        (folder / "password").write_text(SECRET)
        if user:
            for path in (folder, folder / "password"):
                shutil.chown(path, "nobody")
        data = str(folder / "data")
        words = [initdb, "-D", data, "-U", "me", "-A", "scram-sha-256", f"--pwfile={folder / 'password'}", "--no-sync"]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL, cwd=folder, **user)
        options = ["-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-k", name, "-p", str(port)]
        with subprocess.Popen(
            [postgres, "-D", data, *options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            **user,
        ) as process:
            try:
                url = f"postgresql://me:{SECRET}@127.0.0.1:{port}/postgres"
                wait_until_it_answers(url, process)
                yield url
            finally:
                process.send_signal(signal.SIGINT)  # SIGTERM would wait for this process's own connections


def work(place: Place, output: str, storage: str, both: Any) -> None:
    """Search; the first trial waits until the other worker has one too."""
    begin, met = Trials.__call__, []

    def meet_once(self: Trials, trial: Any) -> float:
        if not met:
            met.append(both.wait(300))
        return begin(self, trial)

    Trials.__call__ = meet_once  # type: ignore[method-assign]  # of this fork alone
    with Path(os.devnull).open("w") as nothing:
        os.dup2(nothing.fileno(), 1)
        os.dup2(nothing.fileno(), 2)
        place.tune(output, storage=storage, study="shared", trials=4)


@pytest.mark.slow
def test_two_workers_share_a_study(server: str, tmp_path: Path) -> None:
    """In forks of this process, which has imported everything; they also create the tables at the same moment."""
    place, context = Place(tmp_path), multiprocessing.get_context("fork")
    both = context.Barrier(2)
    workers = [
        context.Process(target=work, args=(place, name, server.replace("postgresql", scheme, 1), both))
        for name, scheme in (("one", "postgresql"), ("two", "postgresql+psycopg"))
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    tables = [(tmp_path / name / "trials.csv").read_text() for name in ("one", "two")]
    assert tables[0] == tables[1], "both saw the end"
    assert (tmp_path / "one" / "best.yaml").read_bytes() == (tmp_path / "two" / "best.yaml").read_bytes()
    done = [len(list((tmp_path / name / "trials").glob("*/metrics.json"))) for name in ("one", "two")]
    found = place.tune("three", storage=server, study="shared", trials=4)
    assert min(done) >= 1 and sum(done) == len(found.trials) and len(found.trials) in (4, 5)
    assert len({str(each.settings) for each in found.trials}) == len(found.trials), "nothing is tried twice"
    assert not [file for file in tmp_path.rglob("*.*") if file.is_file() and SECRET in file.read_text(errors="ignore")]
