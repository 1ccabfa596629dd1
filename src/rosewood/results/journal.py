"""Journals of long work, on disk: a killed process loses only the block or row that it was working on."""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from rosewood.errors import RunError
from rosewood.results import Count, FinishedBlock, ResultPart, append

PATTERN = "journal-*.jsonl"


class Journal:
    """One line a block, each on the disk before the next one begins.

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
    """One line a row beside the result, each on the disk before the next one begins; without a path nothing is kept."""

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
