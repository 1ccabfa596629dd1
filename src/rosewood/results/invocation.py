"""The command that started this process, for those who want to give it again."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

PACKAGE = Path(__file__).parent.parent


def typed_command() -> str:
    """As it was typed: a command of Rosewood, one of its modules or somebody's script; empty in a live session."""
    program, *words = sys.argv or [""]
    place = Path(program)
    if place.name in ("rosewood", "rosewood.exe") or place == PACKAGE / "__main__.py":
        return shlex.join(["rosewood", *words])
    if place.is_relative_to(PACKAGE):
        module = ".".join([PACKAGE.name, *place.relative_to(PACKAGE).with_suffix("").parts])
        return shlex.join(["python", "-m", module, *words])
    return shlex.join(["python", program, *words]) if place.suffix == ".py" else ""
