"""A folder that is written to belongs to one process at a time.

While somebody works in a folder, a file `.lock` lies in it. It is locked by the operating system, which lets go of it
when the process ends, however it ends, and it says who that process is. A holder on another host, whose lock a network
file system may not show, gives signs of life: it touches the file every few seconds.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from errno import ENOLCK, ENOSYS, EOPNOTSUPP
from pathlib import Path

import psutil
from filelock import lock_descriptor

from rosewood.errors import RunError

LOCK = ".lock"
BEAT = 5.0
"""Seconds between signs of life."""
SILENCE = 20.0
"""Seconds without one after which a holder on another host counts as dead."""
_GRACE = 10.0
"""Seconds for a holder that is about to say who it is, or that is dead and has children which are about to end."""
_PAUSE = 0.05
_WITHOUT_LOCKS = (ENOSYS, EOPNOTSUPP, ENOLCK)
_ours: set[tuple[Path, int]] = set()


class HeldError(RunError):
    """Somebody else works in this folder."""


@dataclass(frozen=True)
class Holder:
    """Who works in a folder; `started` is when the process began, since its number may be given to another one."""

    host: str
    process: int
    started: float
    since: str

    @classmethod
    def myself(cls) -> Holder:
        now = datetime.now().astimezone().isoformat(" ", "seconds")
        return cls(socket.gethostname(), os.getpid(), psutil.Process().create_time(), now)

    def is_here(self) -> bool:
        """Whether that process is, or was, one of this host."""
        return self.host == socket.gethostname()

    def may_live(self) -> bool:
        """Whether that process still runs, as far as its own host, or another, can tell."""
        return not self.is_here() or self.lives()

    def lives(self) -> bool:
        """Whether that process of this host still runs."""
        try:
            found = psutil.Process(self.process)
            return found.status() != psutil.STATUS_ZOMBIE and abs(found.create_time() - self.started) < 2
        except psutil.NoSuchProcess:
            return False


@contextmanager
def held(folder: Path, patience: float = 0.0) -> Iterator[None]:
    """Have a folder to oneself, or say who has it; it is made if it does not exist, and removed if it stays empty.

    Args:
        folder: What belongs to this process inside the `with`. The thread that holds it may ask for it again.
        patience: Seconds to wait for somebody else to end.

    Raises:
        HeldError: Somebody else works there.
        RunError: Nothing can be written there.
    """
    key = folder.resolve(), threading.get_ident()
    if key in _ours:
        yield
        return
    made = not folder.exists()
    try:
        handle = _acquired(folder, patience)
    except OSError as error:
        raise RunError(f"cannot write {folder}: {error.strerror}. Choose another folder.") from error
    ended = threading.Event()
    beats = threading.Thread(target=_beat, args=(folder / LOCK, ended), daemon=True)
    _ours.add(key)
    beats.start()
    try:
        yield
    finally:
        ended.set()
        beats.join()
        _ours.discard(key)
        _release(folder, handle)
        if made:
            with suppress(OSError):  # there is something in it
                folder.rmdir()


def clear(folder: Path) -> None:
    """Delete all that is in a folder which this process holds."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != LOCK:
            path.unlink()


def _acquired(folder: Path, patience: float) -> int:
    """The locked file, with who we are written into it."""
    began = time.monotonic()
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
        except FileNotFoundError:  # whoever was here before has removed the folder
            continue
        try:
            is_free, holder = _look(folder / LOCK, handle)
            if is_free:
                _write(handle, json.dumps(asdict(Holder.myself())).encode())
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)
        waited = time.monotonic() - began
        if waited >= (patience if holder and holder.may_live() else max(patience, _GRACE)):
            raise HeldError(_sentence(folder, holder))
        time.sleep(_PAUSE)


def _look(path: Path, handle: int) -> tuple[bool, Holder | None]:
    """Whether the file is ours now, and who has it if not."""
    try:
        if not lock_descriptor(handle, blocking=False):
            return False, _read(handle)
    except OSError as error:
        if error.errno not in _WITHOUT_LOCKS:
            raise
    if not _is_there(path, handle):  # its holder deleted it after we had opened it
        return False, None
    left = _read(handle)
    if left is None:
        return True, None
    return not (left.lives() if left.is_here() else _beats(path)), left


def _is_there(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False


def _beats(path: Path) -> bool:
    """Whether somebody on another host, where the lock need not show, touches the file."""
    first, deadline = _touched(path), time.monotonic() + SILENCE
    while time.monotonic() < deadline:
        time.sleep(min(1.0, SILENCE / 4))
        if _touched(path) != first:
            return True
    return False


def _touched(path: Path) -> int:
    with path.open("rb") as file:  # network file systems remember the time of a file until it is opened
        return os.fstat(file.fileno()).st_mtime_ns


def _beat(path: Path, ended: threading.Event) -> None:
    while not ended.wait(BEAT):
        with suppress(OSError):
            os.utime(path)


def _read(handle: int) -> Holder | None:
    """Who is written there; nobody, if that is empty or not whole."""
    try:
        os.lseek(handle, 0, os.SEEK_SET)
        return Holder(**json.loads(os.read(handle, 4096)))
    except (OSError, ValueError, TypeError):
        return None


def _write(handle: int, content: bytes) -> None:
    os.ftruncate(handle, 0)
    os.lseek(handle, 0, os.SEEK_SET)
    os.write(handle, content)
    os.fsync(handle)


def _release(folder: Path, handle: int) -> None:
    """Delete the file while it is still ours: whoever has opened it meanwhile notices."""
    try:
        with suppress(OSError):
            os.ftruncate(handle, 0)  # should it stay, it must not name us
            if _is_there(folder / LOCK, handle):
                (folder / LOCK).unlink()
    finally:
        os.close(handle)


def _sentence(folder: Path, holder: Holder | None) -> str:
    who = "another process works in it"
    if holder is not None:
        who = f"process {holder.process} on {holder.host} has worked in it since {holder.since}"
    return f"{folder} is in use: {who}. Wait until that has ended, or choose another folder."
