"""Ctrl-C and SIGTERM that wait until nothing is left half done.

Python raises KeyboardInterrupt between any two instructions, also inside `subprocess`: `Popen.poll` may have taken the
lock that `Popen.wait` needs and never give it back, which leaves a program waiting for a child that has long ended, and
a child may run of which nobody has the `Popen` yet.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def held_back(*numbers: signal.Signals) -> Iterator[Callable[[], None]]:
    """Inside, these signals raise KeyboardInterrupt where the given function is called, and at the end.

    Signals that are ignored stay ignored. Only the main thread gets any: elsewhere nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        came.append(number)

    def check() -> None:
        if came:
            came.clear()
            raise KeyboardInterrupt

    heard = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    previous = {number: signal.signal(number, note) for number in heard}
    try:
        yield check
        check()
    finally:
        for number, handler in previous.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
