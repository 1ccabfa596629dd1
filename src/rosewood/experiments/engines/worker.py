"""A process that works on one cell: python -m rosewood.experiments.engines.worker FOLDER [TRUSTED MODEL ...].

A folder with work.json belongs to a candidate of a hardening, any other to a cell of an experiment. The process saves
what it has and ends when its standard input is closed, which happens when the process that started it asks for it or
dies. So no worker outlives its command, and a crash costs one cell.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path

from rosewood.errors import RosewoodError
from rosewood.results.files import write_whole

FAILED, INTERRUPTED = 3, 130
"""Exit codes that say how it went; Python itself ends with 1 where not even an error could be written."""
_PATIENCE = 120.0
"""Seconds for another worker, whose starter was killed and which may still be saving."""
_working = threading.Event()


def finish_cell(folder: Path, trusted: Sequence[str] = ()) -> int:
    """Work on the cell; say in error.txt why it could not be finished.

    Args:
        folder: the folder of the cell, with its cell.json or work.json.
        trusted: models whose own code may run.

    Returns:
        The exit code of the process: 0 if the cell is finished, 3 if it failed, 130 if it was interrupted.

    Example:
        >>> finish_cell(Path("runs/probe/vanilla-probe-the-minilm-seed0-0f3c9a1e"))  # doctest: +SKIP
        0
    """
    from rosewood.experiments.cell import ERROR
    from rosewood.training.callbacks import Interrupted

    try:
        from rosewood.experiments.harden.stage import WORK, work_on_candidate
        from rosewood.experiments.run_cell import work_on
        from rosewood.results.work_folder import held

        _working.set()
        with held(folder, _PATIENCE):
            (folder / ERROR).unlink(missing_ok=True)
            if (folder / WORK).exists():
                work_on_candidate(folder)
            else:
                work_on(folder, trusted)
    except (Interrupted, KeyboardInterrupt):
        return INTERRUPTED
    except RosewoodError as error:
        print(f"Error: {error}", file=sys.stderr)
        write_whole(folder / ERROR, f"{error}\n")
        return FAILED
    except Exception as error:
        traceback.print_exc()
        write_whole(folder / ERROR, "".join(traceback.format_exception_only(error)))
        return FAILED
    return 0


def _stop_when_left_alone() -> None:
    while os.read(0, 1):  # not sys.stdin, whose lock a process cannot take back at its end
        pass
    if not _working.is_set():
        os._exit(INTERRUPTED)  # there is nothing to save, and libraries need not bear an exception while imported
    _thread.interrupt_main()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell starts in the background ignores it
    threading.Thread(target=_stop_when_left_alone, daemon=True).start()
    sys.exit(finish_cell(Path(sys.argv[1]), sys.argv[2:]))
