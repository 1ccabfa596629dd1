"""Names for files on disk: equal names mean equal content."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import xxhash

from rosewood.data.models import resolve_model

_CHUNK = 2**22


def file_digest(path: Path) -> str:
    """A hash of the content; read once as long as the file does not change."""
    found = path.stat()
    return _digest(path, found.st_mtime_ns, found.st_size)


def of_checkpoint(name: str) -> str:
    """A hash of the files in a model's folder; the name itself of a model that is not in a folder."""
    folder = Path(resolve_model(name))
    if not folder.is_dir():
        return name
    digest = xxhash.xxh3_64()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(folder)} {file_digest(path)}\n".encode())
    return digest.hexdigest()


@cache
def _digest(path: Path, modified: int, size: int) -> str:
    digest = xxhash.xxh3_64()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
