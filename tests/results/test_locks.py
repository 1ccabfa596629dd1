"""A folder belongs to one process at a time, and never to a dead one."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from errno import ENOLCK
from pathlib import Path
from typing import Any

import psutil
import pytest
from filelock import lock_descriptor

from held_elsewhere import held_elsewhere
from launcher import child
from rosewood.errors import RunError
from rosewood.results import work_folder
from rosewood.results.work_folder import LOCK, HeldError, clear, held


def note(folder: Path, **changes: Any) -> None:
    """What a process that was killed has left, which nobody has locked."""
    folder.mkdir(exist_ok=True)
    mine = {"host": socket.gethostname(), "process": os.getpid(), "started": psutil.Process().create_time()}
    (folder / LOCK).write_text(json.dumps(mine | {"since": "2026-01-02 03:04:05+00:00"} | changes))


def test_the_second_hears_who_has_it_and_the_dead_have_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with held_elsewhere(folder) as number:
        who = rf"process {number} on {socket.gethostname()} has worked in it since \d{{4}}-\d\d-\d\d \d\d:\d\d"
        with (
            pytest.raises(HeldError, match=rf"{folder} is in use: {who}.*Wait until that has ended, or choose"),
            held(folder),
        ):
            pass
        os.kill(number, signal.SIGKILL)
        while psutil.Process(number).status() != psutil.STATUS_ZOMBIE:  # nobody has fetched its exit code yet
            time.sleep(0.01)
        assert (folder / LOCK).read_text(), "it could not clean up"
        with held(folder):
            assert json.loads((folder / LOCK).read_text())["process"] == os.getpid()
    assert not folder.exists() or not list(folder.iterdir())


def test_children_of_a_dead_holder_are_waited_for(tmp_path: Path) -> None:
    """A worker of a data loader, say, has inherited the locked file, and ends soon after its parent."""
    note(tmp_path, process=2**22 + 1)
    handle = os.open(tmp_path / LOCK, os.O_RDWR)
    assert lock_descriptor(handle, blocking=False)
    threading.Timer(0.5, os.close, (handle,)).start()
    with held(tmp_path):
        assert json.loads((tmp_path / LOCK).read_text())["process"] == os.getpid()


def test_a_number_that_went_to_another_process(tmp_path: Path) -> None:
    """Ours, here: the holder had it before a restart."""
    note(tmp_path, started=psutil.Process().create_time() - 1000)
    with held(tmp_path):
        pass
    assert not list(tmp_path.iterdir())


def test_where_nothing_can_be_locked_the_living_are_still_respected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: Any, **__: Any) -> bool:
        raise OSError(ENOLCK, "No locks available")

    monkeypatch.setattr(work_folder, "lock_descriptor", no_locks)
    note(tmp_path)
    with pytest.raises(HeldError, match=f"process {os.getpid()} on .* since 2026-01-02 03:04:05"), held(tmp_path):
        pass
    note(tmp_path, process=2**22 + 1)
    with held(tmp_path):
        pass


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_folder, "BEAT", 0.1)
    monkeypatch.setattr(work_folder, "SILENCE", 2.0)


def test_a_holder_on_another_host_is_watched_for_signs_of_life(tmp_path: Path, quick: None) -> None:
    """Where locks do not reach the other host: a file that nobody has locked, and that is touched."""
    note(tmp_path, host="elsewhere", process=1)
    ended = threading.Event()
    beats = threading.Thread(target=work_folder._beat, args=(tmp_path / LOCK, ended))
    beats.start()
    with pytest.raises(HeldError, match="process 1 on elsewhere has worked in it since 2026-01-02"), held(tmp_path):
        pass
    ended.set()
    beats.join()
    with held(tmp_path):  # it has been silent
        assert json.loads((tmp_path / LOCK).read_text())["host"] == socket.gethostname()


def test_a_holder_gives_signs_of_life(tmp_path: Path, quick: None) -> None:
    with held(tmp_path):
        first = work_folder._touched(tmp_path / LOCK)
        deadline = time.monotonic() + 60
        while work_folder._touched(tmp_path / LOCK) == first:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_whoever_has_it_may_ask_again_but_no_other_thread(tmp_path: Path) -> None:
    errors: list[Exception] = []

    def other() -> None:
        try:
            with held(tmp_path):
                pass
        except HeldError as error:
            errors.append(error)

    with held(tmp_path):
        with held(tmp_path / "." / "."):
            pass
        assert (tmp_path / LOCK).exists()
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert [f"process {os.getpid()}" in str(error) for error in errors] == [True]


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    with held(tmp_path / "new" / "run"):
        pass
    assert not (tmp_path / "new" / "run").exists()
    (tmp_path / "old" / "deep").mkdir(parents=True)
    (tmp_path / "old" / "file").write_text("")
    (tmp_path / "old" / "link").symlink_to(tmp_path, target_is_directory=True)
    with held(tmp_path / "old"):
        clear(tmp_path / "old")
        assert [path.name for path in (tmp_path / "old").iterdir()] == [LOCK]
    assert not list((tmp_path / "old").iterdir())


def test_a_file_that_somebody_has_deleted_and_made_again_is_not_ours_to_delete(tmp_path: Path) -> None:
    with held(tmp_path):
        (tmp_path / LOCK).unlink()
        note(tmp_path)
    assert (tmp_path / LOCK).exists()


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "precious").write_text("years of work")
    (tmp_path / "run" / LOCK).symlink_to(tmp_path / "precious")
    with pytest.raises(RunError, match="cannot write"), held(tmp_path / "run"):
        pass
    assert (tmp_path / "precious").read_text() == "years of work"


def compete(folder: Path, report: Path, rounds: int, died: bool) -> None:
    """Take the folder again and again; nobody else may be inside meanwhile."""
    for _ in range(rounds):
        try:
            with held(folder, patience=60):
                (folder / "inside").touch(exist_ok=False)
                time.sleep(0.001)
                if died:
                    (folder / "inside").unlink()
                    os.kill(os.getpid(), signal.SIGKILL)
                (folder / "inside").unlink()
        except BaseException as error:
            report.write_text(repr(error))
            raise


def test_many_at_once_and_some_that_die_inside(tmp_path: Path) -> None:
    """The file is deleted and made again each time, which must not let two in."""
    folder = tmp_path / "folder"
    folder.mkdir()
    workers = [child(compete, folder, tmp_path / f"{number}.txt", 40, number % 3 == 2) for number in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    assert [path.read_text() for path in tmp_path.glob("*.txt")] == []
    assert [worker.exitcode for worker in workers] == [0, 0, -9, 0, 0, -9]
    assert [path.name for path in folder.iterdir()] in ([], [LOCK])
