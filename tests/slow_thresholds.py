"""The automatic thresholds written as slowly and plainly as possible: plain numbers, every cut tried in turn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median_low


def slowly_kept(risks: Sequence[float], rule: str) -> list[bool]:
    """Whether each risk is at most the threshold of the rule."""
    ordered = sorted(risks)
    least = ordered[math.ceil(len(ordered) / 10) - 1]
    threshold = max([least, *(risk for risk in ordered if risk == 0), slow_threshold(ordered, least, rule)])
    return [risk <= threshold for risk in risks]


def slow_threshold(ordered: list[float], least: float, rule: str) -> float:
    usable = [risk for risk in ordered if 0 < risk < math.inf]
    cuts = [risk for risk in dict.fromkeys(usable) if risk >= least]
    if not cuts:
        return 0.0
    logs = [math.log(risk) for risk in usable]
    if rule in ("auto", "outliers"):
        middle = median_low(logs)
        bound = middle + 2 * 1.4826 * median_low([abs(log - middle) for log in logs])
        return max([risk for risk, log in zip(usable, logs, strict=True) if log <= bound])
    score = {"otsu": between_groups, "gap": gap_above}[rule]
    scores = {cut: score(logs, math.log(cut)) for cut in cuts}
    best = max(scores.values())
    return max(cut for cut in cuts if scores[cut] >= best * (1 - 1e-4))


def between_groups(logs: list[float], cut: float) -> float:
    """How much smaller the sum of squares is within the two groups than in all."""
    low, high = [log for log in logs if log <= cut], [log for log in logs if log > cut]
    return 0.0 if not high else squares(logs) - squares(low) - squares(high)


def squares(logs: list[float]) -> float:
    mean = fmean(logs)
    return math.fsum((log - mean) ** 2 for log in logs)


def gap_above(logs: list[float], cut: float) -> float:
    return min([log for log in logs if log > cut], default=cut) - cut
