"""Words that mean the opposite of each other, which no lexicon should offer as substitutes."""

from __future__ import annotations

import os
from pathlib import Path

from rosewood.errors import DataError

FILES = "wordsub/*antonyms.txt"
Pair = frozenset[str]
"""Two words, in no order."""


def antonyms(data_dir: str | Path | None = None) -> frozenset[Pair]:
    """The pairs in the antonym files of the data folder, which are those of counter-fitting (Mrkšić et al. 2016)."""
    folder = data_dir or os.environ.get("ROSEWOOD_DATA")
    files = sorted(Path(folder).glob(FILES)) if folder else []
    return frozenset(pair for file in files for pair in read_pairs(file))


def read_pairs(path: Path) -> list[Pair]:
    """Two words a line."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read as text: {error}") from None
    pairs = []
    for number, line in enumerate(lines, start=1):
        words = line.split()
        if len(words) not in (0, 2):
            raise DataError(f"{path}, line {number}: expected two words, got {line!r}")
        if words:
            pairs.append(frozenset(words))
    return pairs
