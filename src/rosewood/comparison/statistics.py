"""Statistics of comparisons: tests, intervals, and RoAST's summary of methods by mean improvement and rank."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import binomtest, rankdata, ttest_ind_from_stats
from scipy.stats import t as student

from rosewood.comparison.runs import EvaluatedRun
from rosewood.errors import DataError
from rosewood.evaluation.metrics import Floats
from rosewood.results.evaluation import is_guessing
from rosewood.tensors.statistics import wilson_interval

PERFECT: dict[str, float] = {"accuracy": 1.0, "shift": 1.0, "adversarial": 1.0, "ece": 0.0, "auroc": 1.0}
"""RoAST's five metrics, as shares, and the value of a perfect model."""
FIVE_METRICS = tuple(PERFECT)
FOUR_METRICS = FIVE_METRICS[1:]
"""The robustness metrics alone, without the accuracy on the trained distribution."""


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float]:
    """The mean and the sample standard deviation, which is NaN for a single value."""
    runs = _runs(values, at_least=1)
    return float(runs.mean()), float(runs.std(ddof=1)) if len(runs) > 1 else float("nan")


def t_interval(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of the mean over runs with several seeds, by Student's t."""
    mean, deviation = mean_and_deviation(_runs(values, at_least=2).tolist())
    half = float(student.ppf(0.975, len(values) - 1)) * deviation / len(values) ** 0.5
    return mean - half, mean + half


SHARE = (0.0, 1.0)
"""What a share can be."""


def seed_interval(values: Sequence[float], bounds: tuple[float, float] = SHARE) -> tuple[float, float] | None:
    """The 95 % interval of the mean over seeds, by Student's t, cut to what the figure can be.

    None below three seeds, since two give nearly always all that can be, and where all seeds are alike: without any
    deviation the formula would call the mean certain.
    """
    if len(values) < 3 or np.ptp(values) == 0:
        return None
    low, high = t_interval(values)
    return max(bounds[0], low), min(bounds[1], high)


def welch(better: Sequence[float], baseline: Sequence[float]) -> float | None:
    """The p-value of Welch's one-tailed t-test that `better` has the greater mean, over runs with several seeds.

    Where neither varies there is no test: the statistic is a division by zero, and a difference of one example between
    models that always answer the same would be the surest of all.
    """
    ours, theirs = _runs(better, at_least=2), _runs(baseline, at_least=2)
    if np.ptp(ours) == np.ptp(theirs) == 0:
        return None
    # From the moments, because scipy warns about values that are all alike, as one side's may well be.
    moments = (*mean_and_deviation(better), len(ours), *mean_and_deviation(baseline), len(theirs))
    return float(ttest_ind_from_stats(*moments, equal_var=False, alternative="greater").pvalue)


class PairedDifference(NamedTuple):
    """The difference of two accuracies on the same examples, and its 95 % interval."""

    difference: float
    low: float
    high: float


def paired_difference(correct_a: ArrayLike, correct_b: ArrayLike) -> PairedDifference:
    """Accuracy of `a` minus that of `b`, with the score interval of Newcombe (1998, method 10).

    It never shrinks to a point, as a bootstrap does where both models are right on the same examples, and it does not
    end at 0 because only one model has examples to itself.
    """
    first, second = _pair(correct_a, correct_b)
    n, both, neither = len(first), int((first & second).sum()), int((~first & ~second).sum())
    right_a, right_b = int(first.sum()), int(second.sum())
    (low_a, high_a), (low_b, high_b) = wilson_interval(right_a, n), wilson_interval(right_b, n)
    margins = math.prod((right_a, n - right_a, right_b, n - right_b))
    together: float = both * neither - (right_a - both) * (right_b - both)
    if together > 0:
        together = max(together - n / 2, 0)  # Newcombe's correction for continuity
    correlation = together / math.sqrt(margins) if margins else 0.0
    mean_a, mean_b = right_a / n, right_b / n

    def distance(a: float, b: float) -> float:
        return math.sqrt(max(a * a - 2 * correlation * a * b + b * b, 0.0))

    difference = (right_a - right_b) / n
    return PairedDifference(
        difference,
        max(-1.0, difference - distance(mean_a - low_a, high_b - mean_b)),
        min(1.0, difference + distance(high_a - mean_a, mean_b - low_b)),
    )


def mcnemar(correct_a: ArrayLike, correct_b: ArrayLike) -> float:
    """The exact two-sided p-value that two models are equally accurate, from the examples only one has right."""
    first, second = _pair(correct_a, correct_b)
    only_a, only_b = int((first & ~second).sum()), int((second & ~first).sum())
    return float(binomtest(only_a, only_a + only_b).pvalue) if only_a + only_b else 1.0


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """The p-values adjusted for their number by Holm's method, in the order given."""
    adjusted: dict[str, float] = {}
    highest = 0.0
    for done, name in enumerate(sorted(p_values, key=lambda each: p_values[each])):
        if not 0 <= p_values[name] <= 1:
            raise DataError(f"expected p-values from 0 to 1; got {p_values[name]} for {name}.")
        highest = max(highest, min(1.0, (len(p_values) - done) * p_values[name]))
        adjusted[name] = highest
    return {name: adjusted[name] for name in p_values}


class GlueAggregates(NamedTuple):
    """ROSE's two summary columns: the mean of all accuracies, and the mean drop from clean to adversarial text."""

    average: float
    drop: float


def glue_aggregates(clean: Mapping[str, float], adversarial: Mapping[str, float]) -> GlueAggregates:
    """The summary of accuracies per task on GLUE and on AdvGLUE, in the unit they come in."""
    if not clean or set(clean) != set(adversarial):
        raise DataError(
            f"expected the same tasks on both sides; got {_listed(clean)} clean and {_listed(adversarial)} adversarial."
        )
    before, after = np.mean(list(clean.values())), np.mean(list(adversarial.values()))
    return GlueAggregates(average=float((before + after) / 2), drop=float(before - after))


def relative_improvement(
    method: Mapping[str, float], vanilla: Mapping[str, float], metrics: Sequence[str] = FIVE_METRICS
) -> float:
    """RoAST's average of the improvements over vanilla, each in % of what vanilla lacks to perfection.

    A metric on which vanilla is perfect has nothing to improve and is left out.
    """
    ours, theirs = _metric_values(method, metrics, "the method"), _metric_values(vanilla, metrics, "vanilla")
    lacking = np.array([PERFECT[metric] for metric in metrics]) - theirs
    improvable = lacking != 0
    if not improvable.any():
        raise DataError("vanilla is perfect by every metric: there is no improvement to measure.")
    return float(100 * ((ours - theirs)[improvable] / lacking[improvable]).mean())


def average_rank(methods: Mapping[str, Mapping[str, float]], metrics: Sequence[str] = FIVE_METRICS) -> dict[str, float]:
    """The mean over the metrics of each method's rank, 1 for the best; equal values share the mean of their ranks."""
    if not methods:
        raise DataError("no methods to rank.")
    values = np.stack([_metric_values(each, metrics, name) for name, each in methods.items()])
    distance = np.abs(values - [PERFECT[metric] for metric in metrics])
    return dict(zip(methods, map(float, rankdata(distance, axis=0).mean(axis=1)), strict=True))


def _runs(values: Sequence[float], at_least: int) -> Floats:
    runs = np.asarray(values, dtype=np.float64)
    if runs.ndim != 1 or len(runs) < at_least or not np.isfinite(runs).all():
        raise DataError(f"expected the finite values of at least {at_least} run(s); got {values}.")
    return runs


def _pair(correct_a: ArrayLike, correct_b: ArrayLike) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    first, second = np.asarray(correct_a, dtype=bool), np.asarray(correct_b, dtype=bool)
    if first.ndim != 1 or first.shape != second.shape or not len(first):
        raise DataError(
            f"expected one truth value per example for both models, in the same order; "
            f"got shapes {first.shape} and {second.shape}."
        )
    return first, second


def _metric_values(values: Mapping[str, float], metrics: Sequence[str], whose: str) -> Floats:
    for metric in metrics:
        if metric not in PERFECT or metric not in values:
            raise DataError(
                f"expected the metrics {', '.join(metrics)} (of {_listed(PERFECT)}) of {whose}; got {_listed(values)}."
            )
        if not 0 <= values[metric] <= 1:
            raise DataError(f"expected {metric} of {whose} as a share from 0 to 1; got {values[metric]}.")
    return np.array([values[metric] for metric in metrics], dtype=np.float64)


def _listed(names: Mapping[str, float]) -> str:
    return ", ".join(names) or "none"


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
