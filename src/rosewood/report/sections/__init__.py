"""The sections of a report: functions marked with `@section`, in any file of this folder.

A section takes the subject of the report and returns a `Section`, or None where the runs have no such results. A file
is found without touching a list. Installed packages may have such files too: see `rosewood.config.registry`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from pathlib import Path

from rosewood.config.registry import modules_in
from rosewood.report.parts import Section
from rosewood.report.subject import Subject

Written = Callable[[Subject], Section | None]
_PLACE = "place_in_report"


def section(place: int) -> Callable[[Written], Written]:
    """Mark a function as a section of the report; sections follow each other by their places.

    Args:
        place: where the section comes: the comparison is at 10, the commands are at 100.

    Returns:
        The decorator, which leaves the function as it is.
    """

    def mark(function: Written) -> Written:
        setattr(function, _PLACE, place)
        return function

    return mark


def sections(subject: Subject) -> Iterator[Section]:
    """All sections that have something to show, in their order."""
    for write in sorted(_written(), key=lambda each: getattr(each, _PLACE)):
        found = write(subject)
        if found is not None:
            yield found


def _written() -> Iterator[Written]:
    for each in modules_in(__name__, Path(__file__).parent).values():
        module = importlib.import_module(each)
        yield from (value for value in vars(module).values() if hasattr(value, _PLACE))
