"""What tells methods apart on every figure: the same method has the same colour and sign on all of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from rosewood.figures.style import PALETTE, colour

SIGNS = (("circle", "solid"), ("diamond", "dash"), ("square", "dot"), ("triangle-up", "dashdot"))
POINTS = 200


class Mark(NamedTuple):
    """The look of one series: its colour, the sign of its points and the dashes of its lines."""

    colour: str
    symbol: str
    dash: str


def mark(place: int) -> Mark:
    """The look of the series at this place; where colours start anew, signs and dashes change."""
    return Mark(colour(place), *SIGNS[place // len(PALETTE) % len(SIGNS)])


def drawn(steps: Sequence[int]) -> slice:
    """Which of very many steps to draw: at most 200 at equal distances, the last among them."""
    stride = math.ceil(len(steps) / POINTS)
    return slice((len(steps) - 1) % stride, None, stride)
