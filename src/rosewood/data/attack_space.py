"""How many texts an attacker can choose from: the size of the space that substitutions span."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import exp, log

from rosewood.data.constraints import Surface


@dataclass(frozen=True)
class AttackSpace:
    """Means over texts; `geometric_choices ** words` is the geometric mean of their sizes, since sizes multiply."""

    words: float
    """Substitutable words of a text."""
    choices: float
    """Choices at such a word, itself included: the arithmetic mean, as in RIFT's 6.5^4 for SNLI."""
    geometric_choices: float


def attack_space(surfaces: Iterable[Surface]) -> AttackSpace:
    """The size of the attack space of texts, from what may stand in for each of their words."""
    texts = words = substitutes = 0
    logs = 0.0
    for surface in surfaces:
        counts = [len(found) for found in surface if found]
        texts, words, substitutes = texts + 1, words + len(counts), substitutes + sum(counts)
        logs += sum(log(1 + count) for count in counts)
    if not words:
        return AttackSpace(0.0, 1.0, 1.0)
    return AttackSpace(words / texts, 1 + substitutes / words, exp(logs / words))
