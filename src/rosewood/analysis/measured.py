"""Results of measuring models at many places on the same examples, which a second call finds finished."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import Field

from rosewood.errors import RunError
from rosewood.results import Count, ResultFile, installed_versions


class Measured(ResultFile):
    """What was measured on, and with what."""

    source: str  # of the examples, in words
    data: str  # fingerprint of the examples
    examples: Count
    fingerprint: str  # of the models, the examples and all settings
    versions: dict[str, str] = Field(default_factory=installed_versions)

    @classmethod
    def finished(cls, path: Path | None, fingerprint: str) -> Self | None:
        """The result of an earlier call, if there is one; refused if something else was measured."""
        if path is None or not path.exists():
            return None
        found = cls.load(path)
        if found.fingerprint != fingerprint:
            raise RunError(
                f"{path} holds results for other models, on other data or with other settings: "
                "choose another --output, or delete it."
            )
        return found
