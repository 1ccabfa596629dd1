"""The sections of a report: every file is one, found without touching a list.

A file has `PLACE`, a number that decides where on the page it stands, and `section(subject)`, which returns a `Section`
or None where the runs have no such results.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from types import ModuleType

from rosewood.report.parts import Section
from rosewood.report.subject import Subject


def sections(subject: Subject) -> Iterator[Section]:
    """All sections that have something to show, in their order."""
    for module in sorted(_modules(), key=lambda module: module.PLACE):
        found = module.section(subject)
        if found is not None:
            yield found


def _modules() -> Iterator[ModuleType]:
    for each in pkgutil.iter_modules(__path__):
        yield importlib.import_module(f"{__name__}.{each.name}")
