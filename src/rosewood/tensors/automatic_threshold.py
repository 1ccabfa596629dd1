"""Thresholds that the risks set by themselves: where do the low ones end?

Each rule looks at the logarithms of all risks, so that their scale does not matter. Risks of 0 and infinity have no
logarithm and take no part in finding the threshold: zeros always lie below it, infinities above. Equal risks are never
separated, and a tenth of all, the lowest ones, is always kept. Nothing waits for the device.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor

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
