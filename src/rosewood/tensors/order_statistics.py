"""Order statistics: which of many values lie between two quantiles, and five numbers that stand for all of them."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor


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
