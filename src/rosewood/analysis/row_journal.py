"""Rows of a long computation that are finished, on disk: a process that is killed loses the row it was at, no more."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import ValidationError

from rosewood.errors import RunError
from rosewood.results import Count, ResultPart, append


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
            text = self.path.read_bytes()
        except OSError as error:
            raise RunError(f"cannot write {self.path}: {error.strerror}. Choose another --output.") from error
        whole = text[: text.rfind(b"\n") + 1]
        try:
            rows = [FinishedRow.model_validate_json(line) for line in whole.splitlines()]
        except ValidationError as error:
            raise RunError(f"{self.path} is damaged: delete it, and its rows are computed again. ({error})") from None
        if any(row.fingerprint != self._fingerprint for row in rows):
            raise RunError(
                f"{self.path} belongs to a computation with other settings, another model or other data: "
                "choose another --output, or delete it."
            )
        if len(whole) < len(text):
            os.truncate(self.path, len(whole))
        return {row.row: row.values for row in rows}

    def append(self, row: int, values: list[float]) -> None:
        """Add a row and wait until it is on the disk."""
        if self.path is not None:
            append(self.path, FinishedRow(fingerprint=self._fingerprint, row=row, values=values))

    def remove(self) -> None:
        """Forget everything, once it is in the result."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)
