"""Runs that can be analysed: those whose training has ended."""

from __future__ import annotations

from pathlib import Path

from rosewood.errors import RunError
from rosewood.results import RunInfo


def finished_run(folder: Path) -> RunInfo:
    """What a finished run says of itself; any other folder is refused."""
    if not (folder / "run.json").exists():
        what = "is not a run of Rosewood (no run.json)" if folder.exists() else "does not exist"
        raise RunError(f"{folder} {what}: expected the --output of a finished rosewood train")
    info = RunInfo.load(folder / "run.json")
    if info.status != "finished":
        advice = f"continue it with rosewood train --output {folder} --resume"
        raise RunError(f"{folder} is not finished ({info.status}): {advice}")
    return info
