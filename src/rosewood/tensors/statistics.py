"""Statistics of many values at once: quantiles, automatic thresholds, intervals of shares, divergences of predictions.

An automatic threshold looks at the logarithms of all risks, so their scale does not matter. Risks of 0 and infinity
have no logarithm and do not help to find the threshold: zeros always lie below it, infinities above. Equal risks are
never separated, and the lowest tenth is always kept. Nothing waits for the device.

A divergence compares two passes by log-probabilities in float32 or better. Logits are `(predictions, classes)`, or
`(predictions, labels, 2)` where a prediction is made of independent yes-or-no distributions: there the divergence of a
prediction is the sum over its labels. What comes out is the mean over the predictions, that is over the examples, or
over the counted tokens of a token task, just like the model's own cross-entropy; without any prediction it is 0.
`Output.predictions` gives such logits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from scipy.stats import binomtest
from torch import Tensor, nn
from torch.nn import functional

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


def divergence_problems(model: nn.Module, user: str) -> list[str]:
    """Why a divergence of predictions makes no sense on this model; nothing if it does."""
    name, config = type(model).__name__, getattr(model, "config", None)
    problem = getattr(config, "problem_type", None)
    if problem == "regression" or (getattr(config, "num_labels", 2) == 1 and problem != "multi_label_classification"):
        return [
            f"{user} compares predicted probabilities, and {name} predicts a number (regression, or a single label): "
            "use a classifier, or another component"
        ]
    if getattr(model, "loss_type", None) == "ForQuestionAnswering":
        return [
            f"{user} compares predicted classes, and {name} predicts where an answer starts and ends: use a "
            "classifier, or another component"
        ]
    return []


def log_probabilities(logits: Tensor) -> Tensor:
    """Log-softmax over the classes, of the same shape."""
    return functional.log_softmax(logits, dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32))


def symmetric_kl(first: Tensor, second: Tensor) -> Tensor:
    """KL(p || q) + KL(q || p), averaged over the predictions (ROSE Eq. 1 up to the factor 1/batch)."""
    log_p, log_q = log_probabilities(first), log_probabilities(second)
    return _mean((log_p.exp() - log_q.exp()) * (log_p - log_q))


def forward_kl(first: Tensor, second: Tensor) -> Tensor:
    """KL(p || q), averaged over the predictions."""
    return _kl(log_probabilities(first), log_probabilities(second))


def log_odds_gap(first: Tensor, second: Tensor, smoothing: float = 1e-6) -> Tensor:
    """2 sum_c q_c (log-odds of q_c - log-odds of p_c), averaged over the predictions: mt-dnn's `stable_kl`.

    The log-odds log(q / (1 - q)), smoothed as there, are constants, so a gradient reaches `second` through the factor
    q alone. For two classes it is 4 times that of KL(q || p).
    """
    p, q = log_probabilities(first).exp(), log_probabilities(second).exp()
    p_odds, q_odds = (-(1 / (each.detach() + smoothing) - 1 + smoothing).log() for each in (p, q))
    return _mean(2 * q * (q_odds - p_odds))


def midpoint_kl(first: Tensor, second: Tensor) -> Tensor:
    """(KL(m || p) + KL(m || q)) / 2 with m = (p + q) / 2, averaged over the predictions.

    HiddenCut's "Jensen-Shannon": the arguments are the other way round than in the divergence of that name.
    """
    log_p, log_q = log_probabilities(first), log_probabilities(second)
    log_m = torch.logaddexp(log_p, log_q) - math.log(2)
    return (_kl(log_m, log_p) + _kl(log_m, log_q)) / 2


def _kl(log_p: Tensor, log_q: Tensor) -> Tensor:
    return _mean(log_p.exp() * (log_p - log_q))


def _mean(parts: Tensor) -> Tensor:
    """The sum over everything that belongs to a prediction, averaged over the predictions."""
    return parts.flatten(1).sum(1).sum() / max(len(parts), 1)
