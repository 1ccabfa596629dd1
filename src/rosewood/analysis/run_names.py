"""What runs are called where several stand side by side, in tables, figures and the names of files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rosewood.errors import RunError

PRETRAINED = "pre-trained"
"""What the model that runs started from is called, so that no run may be."""


def run_names(runs: Sequence[Path]) -> list[str]:
    """Their folders' names, or, where two are the same or one is taken, the whole paths."""
    if len({folder.resolve() for folder in runs}) < len(runs):
        raise RunError("expected different runs, got one twice: name each once.")
    short = [folder.resolve().name for folder in runs]
    if len({*short, PRETRAINED}) == len(runs) + 1:
        return short
    return ["-".join(folder.resolve().parts[1:]) for folder in runs]
