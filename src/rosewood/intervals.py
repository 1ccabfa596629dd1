"""How sure a measured share is."""

from scipy.stats import binomtest

from rosewood.errors import DataError


def wilson_interval(correct: int, examples: int) -> tuple[float, float]:
    """95 % Wilson interval (low, high) of an accuracy; unlike the normal one it holds near 0 and 1."""
    if not 0 <= correct <= examples or examples == 0:
        raise DataError(
            f"an interval needs at least one example and no more correct than examples; "
            f"got {correct} correct of {examples}."
        )
    interval = binomtest(correct, examples).proportion_ci(confidence_level=0.95, method="wilson")
    return float(interval.low), float(interval.high)
