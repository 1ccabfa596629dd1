"""What RoAST sums methods up by: their mean improvement over a baseline, and their average rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rosewood.comparison.runs import EvaluatedRun
from rosewood.comparison.statistics import FIVE_METRICS, FOUR_METRICS, PERFECT, average_rank, relative_improvement
from rosewood.results.guessing import is_guessing

RANK = "rank"
# RoAST's metrics -> the means of ours; its calibration error is that after temperature scaling.
_OURS = {
    "accuracy": "clean",
    "shift": "shift",
    "adversarial": "adversarial",
    "ece": "held_out_ece",
    "auroc": "auroc",
}

Methods = Mapping[str, Sequence[EvaluatedRun]]


def improvements(methods: Methods, baseline: str | None) -> dict[str, dict[str, float]]:
    """Method -> column -> improvement over the baseline in %, where it can be computed."""
    theirs = _metrics(methods.get(baseline or "", []))
    return {method: _improvements(_metrics(runs), theirs) for method, runs in methods.items()}


def _improvements(ours: Mapping[str, float], theirs: Mapping[str, float]) -> dict[str, float]:
    if not ours or not theirs:
        return {}
    return {
        f"improvement\n({len(metrics)} metrics)": relative_improvement(ours, theirs, metrics)
        for metrics in (FIVE_METRICS, FOUR_METRICS)
    }


def ranks(methods: Methods) -> dict[str, float]:
    """The average rank of each method, if there are several and all have all metrics; else none.

    A method with runs at guessing has no rank among the others.
    """
    learnt = {method: runs for method, runs in methods.items() if not _any_guessing(runs)}
    metrics = {method: _metrics(runs) for method, runs in learnt.items()}
    return dict(average_rank(metrics)) if len(metrics) > 1 and all(metrics.values()) else {}


def _metrics(runs: Sequence[EvaluatedRun]) -> dict[str, float]:
    """RoAST's five metrics, or none of them if one is missing, or if a run is at guessing."""
    found: dict[str, float] = {}
    if _any_guessing(runs):
        return found
    for metric, ours in _OURS.items():
        values = [each.value for run in runs for each in run.evaluation.means if each.name == ours]
        if values:
            found[metric] = float(np.mean(values))
    return found if set(found) == set(PERFECT) else {}


def _any_guessing(runs: Sequence[EvaluatedRun]) -> bool:
    return any(is_guessing(run.evaluation) for run in runs)
