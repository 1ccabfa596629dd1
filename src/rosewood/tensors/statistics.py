"""Statistics of many values at once: quantiles, automatic thresholds, intervals of shares.

An automatic threshold looks at the logarithms of all risks, so their scale does not matter. Risks of 0 and infinity
have no logarithm and do not help to find the threshold: zeros always lie below it, infinities above. Equal risks are
never separated, and the lowest tenth is always kept. Nothing waits for the device.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from scipy.stats import binomtest
from torch import Tensor

from rosewood.errors import DataError


def keep_between(risk: Tensor, bounds: tuple[float, float], count: Literal["interpolated", "floor"]) -> Tensor:
    """1 where a risk lies between the order statistics at two quantiles, ties included, else 0; of risk's dtype."""
    lower, upper = bounds
    n = risk.numel()
    if count == "interpolated":
        lowest, highest = _ceil(lower * (n - 1)), _floor(upper * (n - 1))
    else:
        lowest, highest = max(_ceil(lower * n) - 1, 0), _floor(upper * n) - 1
    if highest < 0:
        return torch.zeros_like(risk)
    low = risk.kthvalue(lowest + 1).values
    high = risk.kthvalue(highest + 1).values
    return ((risk >= low) & (risk <= high)).to(risk.dtype)


def upper_threshold(values: Tensor, share: float) -> Tensor:
    """The least value that is not below the quantile 1 - share.

    Comparing with it selects the same elements as comparing with the interpolated quantile.
    """
    below = _ceil((1 - share) * (values.numel() - 1))
    return values.kthvalue(below + 1).values


def five_numbers(values: Tensor) -> Tensor:
    """Minimum, quartiles and maximum by order statistics, `(5,)`; of an even sample where there are millions."""
    ordered = values[:: max(values.numel() // 100_000, 1)].sort().values
    at = torch.linspace(0, ordered.numel() - 1, 5, device=values.device).round().long()
    return ordered[at]


def _floor(value: float) -> int:
    """Floor that reads 0.29 * 100 as 29."""
    return math.floor(value + 1e-9)


def _ceil(value: float) -> int:
    return math.ceil(value - 1e-9)


RuleName = Literal["auto", "otsu", "outliers", "gap"]
ONE_IN = 10  # of so many is always kept
OUTLIER = 2.0  # standard deviations above the middle
DEVIATIONS = 1.4826  # standard deviation of a normal distribution in median absolute deviations
ROUNDING = 1e-4  # scores this near to each other count as equal, and the higher threshold wins


class Rule(NamedTuple):
    """`ends(logs, allowed)` marks ascending log risks (NaN: none) at which the kept ones may end; the last counts."""

    ends: Callable[[Tensor, Tensor], Tensor]
    formula: str


def keep_low(risk: Tensor, rule: RuleName) -> Tensor:
    """1 where a risk is at most the threshold that the rule finds, else 0; of risk's dtype."""
    ordered = risk.sort().values
    logs = ordered.log()
    logs = logs.where(logs.isfinite(), math.nan)
    position = torch.arange(len(ordered), device=risk.device)
    least = (len(ordered) - 1) // ONE_IN
    last_of_equals = ordered.diff(append=ordered.new_full((1,), math.nan)) != 0
    allowed = ~logs.isnan() & (position >= least) & last_of_equals
    ends = RULES[rule].ends(logs, allowed) & allowed | (ordered == 0) | (position == least)
    threshold = ordered.gather(0, position.where(ends, 0).amax(0, keepdim=True))
    return (risk <= threshold).to(risk.dtype)


def otsu(logs: Tensor, allowed: Tensor) -> Tensor:
    """Two groups whose variances within are least, which is to say that the variance between is greatest."""
    low = (~logs.isnan()).cumsum(0)
    high = low[-1] - low
    below = (logs - logs.nanmean()).nan_to_num().cumsum(0)
    between = below.square() / (low * high).clamp(min=1)
    return _highest(between.masked_fill(high == 0, 0), allowed)


def outliers(logs: Tensor, allowed: Tensor) -> Tensor:
    """Everything but what is far above the middle, in units that outliers do not stretch."""
    middle = logs.nanmedian()
    spread = (logs - middle).abs().nanmedian()
    return logs <= middle + OUTLIER * DEVIATIONS * spread


def gap(logs: Tensor, allowed: Tensor) -> Tensor:
    """The widest gap between neighbours."""
    return _highest(logs.diff(append=logs[-1:]).nan_to_num(), allowed)


def _highest(score: Tensor, allowed: Tensor) -> Tensor:
    return score >= (1 - ROUNDING) * score.where(allowed, 0).amax()


OUTLIERS = Rule(outliers, f"exp(median log r + {OUTLIER:g} s), s = {DEVIATIONS:g} median |log r - median log r|")
RULES: dict[RuleName, Rule] = {
    "auto": OUTLIERS,  # of the three the best on held-out rows: benchmarks/automatic_threshold.py
    "otsu": Rule(otsu, "the cut with the greatest n_low n_high (mean log r_low - mean log r_high)^2"),
    "outliers": OUTLIERS,
    "gap": Rule(gap, "the risk below the widest gap between neighbouring log r"),
}


def wilson_interval(correct: int, examples: int) -> tuple[float, float]:
    """95 % Wilson interval (low, high) of an accuracy; unlike the normal one it holds near 0 and 1."""
    if not 0 <= correct <= examples or examples == 0:
        raise DataError(
            f"an interval needs at least one example and no more correct than examples; "
            f"got {correct} correct of {examples}."
        )
    interval = binomtest(correct, examples).proportion_ci(confidence_level=0.95, method="wilson")
    return float(interval.low), float(interval.high)
