"""Choices that do not hang on the last bits of a float.

The same text scores a little differently in another batch: about 5e-7 in a probability or 2e-6 in a logit of MiniLM
in float32. Substitutes that the model cannot tell apart (two unknown words) tie exactly, and without a rule the noise
of the batch would choose. So whatever is within TOLERANCE counts as equal, and the first one wins. What is left is a
difference that happens to lie at the edge of the tolerance: about as rare as the noise is small.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rosewood.attacks.search.questions import Floats

DECIMALS = 5
TOLERANCE = 10.0**-DECIMALS


def first_lowest(values: Floats) -> int:
    """The first index whose value is the lowest, up to the tolerance."""
    return int(np.argmax(values <= values.min() + TOLERANCE))


def highest_first(values: Floats) -> NDArray[np.int64]:
    """All indices, highest value first, equals in order; values near 0 are equal, as most ties are there."""
    return np.argsort(-np.round(values, DECIMALS), kind="stable")


def lower(value: float, than: float) -> bool:
    """Whether a value is lower by more than the tolerance."""
    return value < than - TOLERANCE
