"""What an attack has finished so far, on disk: a process that is killed loses the blocks it was at, no more."""

from __future__ import annotations

from itertools import count
from pathlib import Path

from pydantic import ValidationError

from rosewood.errors import RunError
from rosewood.results import FinishedBlock, append

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
        try:
            *lines, _ = path.read_bytes().split(b"\n")  # after the last line break: nothing, or half a line
            blocks = [FinishedBlock.model_validate_json(line) for line in lines]
        except (OSError, ValidationError) as error:
            raise RunError(f"{path} is damaged: delete it, and its examples are attacked again. ({error})") from None
        if any(block.fingerprint != self._fingerprint for block in blocks):
            raise RunError(
                f"{self._folder} holds an attack with other settings, another model or other data: "
                "choose another folder, or delete this one."
            )
        return blocks
