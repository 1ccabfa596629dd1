"""What runs the cells of an experiment, wherever that is: all it needs is their folders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, Protocol


class Event(NamedTuple):
    """Work on a cell has started or ended; how it went stands in its folder, unless the process was lost."""

    folder: Path
    what: Literal["started", "ended"]
    lost: str = ""
    """What became of a process that could not say it itself."""


class Engine(Protocol):
    """Local processes, or whatever else shares the file system."""

    def run(self, folders: Sequence[Path]) -> Iterator[Event]:
        """Have every cell worked on, and tell of each when it starts and ends.

        A cell that fails is no reason to stop. When the iterator is closed, or an exception such as KeyboardInterrupt
        passes through it, workers save what they have and end before it returns.
        """
        ...
