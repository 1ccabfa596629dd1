"""How long tests wait for other processes: as long as these work.

A limit in seconds fails on a busy machine, which is slow, not broken. What hangs uses no processor.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

import psutil

SILENCE = 180.0
"""Seconds without any use of the processor by a process below this one."""
LONGEST = 3600.0
"""Seconds after which also something busy has gone wrong."""


def wait_until(happens: Callable[[], bool], what: str = "nothing happened", pause: float = 0.01) -> None:
    """Look again and again whether something has happened; fail when nobody works on it any more."""
    began = heard = looked = time.monotonic()
    used = _used()
    while not happens():
        time.sleep(pause)
        now = time.monotonic()
        if now - looked > 1:
            looked, before, used = now, used, _used()
            if used != before:
                heard = now
            assert now - heard < SILENCE and now - began < LONGEST, what


def _used() -> float:
    """Processor time of all processes below this one."""
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            total += sum(process.cpu_times()[:4])  # its own, and those of children that have ended
    return total
