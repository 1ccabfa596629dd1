"""Another process that has a folder to itself."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_HOLD = """
import sys, time
from pathlib import Path
from rosewood.results.work_folder import held
with held(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


@contextmanager
def held_elsewhere(folder: Path) -> Iterator[int]:
    """Inside, a process of the given number holds the folder; then it is killed."""
    process = subprocess.Popen([sys.executable, "-c", _HOLD, folder], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        yield process.pid
    finally:
        process.kill()
        process.wait()
