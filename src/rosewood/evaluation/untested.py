"""What a comparison leaves untested, and why: nobody should take silence for a result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

NO_ATTACK = ("attacks", "none was made: rosewood attack RUN --attack pwws")
AT_GUESSING = "one of the two is at guessing"
EVERYTHING = "everything"
NAMED = 4
"""So many of the things that share a reason are named, the others counted."""


class Untested(NamedTuple):
    """Something of a method that was not tested against the baseline's."""

    method: str
    what: str
    why: str


def told(untested: Sequence[Untested], methods: Sequence[str]) -> str:
    """All of it in a sentence, by reason; empty if there is nothing. `methods` are those without the baseline."""
    reasons: dict[str, dict[str, list[str]]] = {}
    for each in untested:
        reasons.setdefault(each.why, {}).setdefault(each.what, []).append(each.method)
    parts = []
    for why, found in reasons.items():
        names = list(dict.fromkeys(found.pop(EVERYTHING, [])))
        alike: dict[tuple[str, ...], list[str]] = {}
        for what, those in found.items():
            alike.setdefault(tuple(dict.fromkeys(those)), []).append(what)
        for who, whats in alike.items():
            some = _listed([*whats[:NAMED], *([f"{len(whats) - NAMED} more"] if len(whats) > NAMED else [])])
            names.append(some if set(methods) <= set(who) else f"{some} of {_listed(who)}")
        parts.append(f"{_listed(names)} ({why})")
    return f"Not tested: {'; '.join(parts)}." if parts else ""


def _listed(names: Sequence[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last
