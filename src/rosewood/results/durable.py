"""Files and folders that a crash leaves whole: written beside their place, synced, then renamed into it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# The underscore keeps the Trainer's uploads to the Hub away from it.
UNFINISHED = "_unfinished"


def cache_folder() -> Path:
    """ROSEWOOD_CACHE, or `rosewood` in the user's cache folder."""
    if own := os.environ.get("ROSEWOOD_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rosewood"


def sync(path: Path) -> None:
    """Wait until a file, or the list of names in a folder, is on the disk."""
    is_folder = path.is_dir()
    if is_folder and os.name == "nt":  # Windows has no such call, and keeps names in its journal
        return
    handle = os.open(path, os.O_RDONLY if is_folder else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def append_line(path: Path, text: str) -> None:
    """Add a line to a file and wait until it is on the disk."""
    with path.open("ab") as file:
        file.write(text.encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def write_whole(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old one or the new one, never half of one."""
    write_bytes_whole(path, text.encode("utf-8"))


def write_bytes_whole(path: Path, content: bytes) -> None:
    """As `write_whole`, for a file that is not text."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.unlink(missing_ok=True)  # never follow a link that somebody left under that name
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync(path.parent)
    finally:
        with suppress(OSError):
            temporary.unlink()


def staged_path(place: Path) -> Path:
    """Where a folder is filled before it becomes `place`."""
    return place.parent / UNFINISHED / place.name


@contextmanager
def staged(place: Path) -> Iterator[Path]:
    """A folder to fill, which becomes `place` at the end, synced and whole; after a failure nothing has changed."""
    new = staged_path(place)
    shutil.rmtree(new.parent, ignore_errors=True)
    new.mkdir(parents=True)
    try:
        yield new
        for path in new.rglob("*"):
            sync(path)
        sync(new)
        if place.exists():
            place.rename(new.with_name(f"replaced-{place.name}"))
        new.rename(place)
        sync(place.parent)
    finally:
        shutil.rmtree(new.parent, ignore_errors=True)
