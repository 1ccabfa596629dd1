"""A folder in which work is being done: it belongs to one process at a time, and a journal keeps what is finished.

While somebody works in a folder, a file `.lock` lies in it. It is locked by the operating system, which lets go of it
when the process ends, however it ends, and it says who that process is. A holder on another host, whose lock a network
file system may not show, gives signs of life: it touches the file every few seconds.

Journals have one line for each block or row: a killed process loses only the one that it was working on.
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
from itertools import count
from pathlib import Path
from typing import TypeVar

import psutil
from filelock import lock_descriptor
from pydantic import ValidationError

from rosewood.errors import RunError
from rosewood.results.attack import FinishedBlock
from rosewood.results.files import Count, ResultPart, append

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


PATTERN = "journal-*.jsonl"


class Journal:
    """One line per block, each on the disk before the next one begins.

    Every process writes a file of its own, a new one whenever it is started: half a line, which a killed process may
    leave, is the last one of its file for ever.
    """

    def __init__(self, folder: Path, fingerprint: str, rank: int = 0) -> None:
        self._folder = folder
        self._fingerprint = fingerprint
        files = (folder / f"journal-{rank}-{start}.jsonl" for start in count())
        self._path = next(file for file in files if not file.exists())

    def read(self) -> dict[int, FinishedBlock]:
        """Block number -> block, from all files, whatever number of processes there was."""
        return {block.number: block for path in sorted(self._folder.glob(PATTERN)) for block in self._blocks_of(path)}

    def begin(self) -> None:
        """Make the folder: where that fails, nothing could be kept."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"cannot write {self._folder}: {error.strerror}. Choose another folder.") from error

    def append(self, block: FinishedBlock) -> None:
        """Add a block and wait until it is on the disk."""
        append(self._path, block)

    def remove(self) -> None:
        """Forget everything, once it is in the result."""
        for path in self._folder.glob(PATTERN):
            path.unlink(missing_ok=True)

    def _blocks_of(self, path: Path) -> list[FinishedBlock]:
        blocks = _lines_of(path, FinishedBlock, "examples are attacked")
        if any(block.fingerprint != self._fingerprint for block in blocks):
            raise RunError(
                f"{self._folder} holds an attack with other settings, another model or other data: "
                "choose another folder, or delete this one."
            )
        return blocks


Line = TypeVar("Line", bound=ResultPart)


def _lines_of(path: Path, kind: type[Line], work: str) -> list[Line]:
    """The whole lines of a journal: after the last line break there is nothing, or half a line of a killed process."""
    try:
        *lines, _ = path.read_bytes().split(b"\n")
        return [kind.model_validate_json(line) for line in lines]
    except (OSError, ValidationError) as error:
        raise RunError(f"{path} is damaged: delete it, and its {work} again. ({error})") from None


class FinishedRow(ResultPart):
    """A line of the journal."""

    fingerprint: str  # of everything that decides the values
    row: Count
    values: list[float]


class RowJournal:
    """One line per row beside the result, each on the disk before the next begins; without a path nothing is kept."""

    def __init__(self, result: Path | None, fingerprint: str) -> None:
        self.path = None if result is None else result.with_suffix(".journal")
        self._fingerprint = fingerprint

    def begin(self) -> dict[int, list[float]]:
        """What an earlier process has finished, row -> values; half a line, which it may have left, is cut off.

        The file is made here, so that a place where nothing can be kept is found out before any work.
        """
        if self.path is None:
            return {}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.touch()
            whole = self.path.read_bytes().rfind(b"\n") + 1
        except OSError as error:
            raise RunError(f"cannot write {self.path}: {error.strerror}. Choose another --output.") from error
        rows = _lines_of(self.path, FinishedRow, "rows are computed")
        if any(row.fingerprint != self._fingerprint for row in rows):
            raise RunError(
                f"{self.path} belongs to a computation with other settings, another model or other data: "
                "choose another --output, or delete it."
            )
        os.truncate(self.path, whole)
        return {row.row: row.values for row in rows}

    def append(self, row: int, values: list[float]) -> None:
        """Add a row and wait until it is on the disk."""
        if self.path is not None:
            append(self.path, FinishedRow(fingerprint=self._fingerprint, row=row, values=values))

    def remove(self) -> None:
        """Forget everything, once it is in the result."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)
