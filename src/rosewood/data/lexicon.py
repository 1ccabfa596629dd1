"""Which words may stand in for which: the substitution sets of attacks and of adversarial training."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

from rosewood.errors import DataError

COUNTER_FITTED = "wordsub/counterfitted_neighbors.json"


@dataclass(frozen=True)
class Lexicon:
    """Substitutes of words, best first; most lexicons are in lower case."""

    name: str
    entries: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, entries: Mapping[str, Sequence[str]], name: str = "lexicon") -> Lexicon:
        """A lexicon from word -> substitutes; refuses what no attack could use."""
        if not isinstance(entries, Mapping):
            raise DataError(f"{name}: expected word -> list of substitutes, got {type(entries).__name__}")
        return cls(name, {word: _checked(name, word, found) for word, found in entries.items()})

    @classmethod
    def load(cls, path: str | Path) -> Lexicon:
        """Read a JSON object of word -> list of substitutes."""
        path = Path(path)
        try:
            entries = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise DataError(f"{path}: no such file, expected a JSON object of word -> list of substitutes") from None
        except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise DataError(f"{path} cannot be read as JSON: {error}") from None
        return cls.of(entries, str(path))

    @classmethod
    def counter_fitted(cls, data_dir: str | Path | None = None) -> Lexicon:
        """The 8 nearest counter-fitted neighbours of 49,975 words (Alzantot et al. 2018, Jia et al. 2019)."""
        folder = data_dir or os.environ.get("ROSEWOOD_DATA")
        if not folder:
            raise DataError(
                f"the counter-fitted neighbours are the file {COUNTER_FITTED} of the data folder: "
                "name the folder with --data-dir or ROSEWOOD_DATA"
            )
        return cls.load(Path(folder) / COUNTER_FITTED)

    def substitutes(self, word: str) -> tuple[str, ...]:
        """The words that may stand in for this one; none if it is not known."""
        return self.entries.get(word, ())

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all entries: figures are comparable only where it is the same."""
        plain = json.dumps({word: list(found) for word, found in self.entries.items() if found}, sort_keys=True)
        return sha256(plain.encode()).hexdigest()[:16]


def _checked(name: str, word: Any, found: Any) -> tuple[str, ...]:
    if not isinstance(word, str) or not word or isinstance(found, str) or not isinstance(found, Sequence):
        raise DataError(f"{name}, entry {word!r}: expected a word and a list of substitutes, got {found!r}")
    bad = [each for each in found if not isinstance(each, str) or not each or any(map(str.isspace, each))]
    if bad:
        raise DataError(f"{name}, entry {word!r}: a substitute must be a single word, got {bad[0]!r}")
    return tuple(each for each in dict.fromkeys(found) if each != word)
