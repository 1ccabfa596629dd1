"""Tests and aggregates agree with scipy, with hand computation and with the published table they come from."""

import math
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import bootstrap, t, ttest_ind

from rosewood.comparison.statistics import (
    FIVE_METRICS,
    FOUR_METRICS,
    average_rank,
    glue_aggregates,
    holm,
    mcnemar,
    mean_and_deviation,
    paired_difference,
    relative_improvement,
    seed_interval,
    t_interval,
    welch,
)
from rosewood.errors import DataError

TASKS = ("SST-2", "RTE", "QNLI", "QQP")
# Table 1 of "ROSE: Robust Selective Fine-tuning for Pre-trained Language Models" (Jiang et al., EMNLP 2022):
# accuracy on GLUE and AdvGLUE per task, then the printed average and drop. First RoBERTa base, then large.
ROSE_TABLE_1 = """
Vanilla          94.29 24.05 77.91 28.15 92.97 27.43 91.58 19.49 56.98 64.41
R-Drop           95.32 27.84 79.86 31.36 93.30 28.92 91.86 37.44 60.74 58.70
Child-Tuning-D   94.21 23.82 75.52 16.54 92.36 31.89 91.64 17.95 55.49 65.88
SMART            94.98 35.95 77.54 24.44 93.35 34.29 91.04 46.58 62.27 53.91
FreeLB           94.89 35.81 78.42 32.10 93.12 36.22 92.04 44.10 63.34 52.56
ROSE-First       94.84 37.67 78.34 35.49 92.19 44.19 89.56 44.44 64.59 48.29
ROSE-Second      93.78 36.99 78.16 37.97 92.41 34.63 90.48 45.73 63.77 49.88
ROSE-Ensemble    94.09 39.36 78.63 38.02 92.64 39.59 90.39 47.44 65.02 47.84
Vanilla-large        96.08 56.08 85.92 61.73 94.58 63.38 92.09 40.60 73.81 36.72
R-Drop-large         96.59 53.38 85.56 66.67 95.01 55.95 92.35 44.80 73.79 37.18
Child-Tuning-D-large 95.91 51.35 85.92 61.73 94.30 58.11 92.03 43.59 72.87 38.35
SMART-large          96.67 59.12 85.02 69.14 94.91 61.04 92.12 50.85 76.11 32.14
FreeLB-large         96.49 59.32 86.76 66.91 94.99 62.30 92.60 48.21 75.95 33.53
ROSE-First-large     95.58 57.77 85.13 70.62 94.08 64.02 90.67 60.26 77.27 28.20
ROSE-Second-large    96.29 60.59 85.08 67.49 94.72 63.68 91.68 55.90 76.93 30.03
ROSE-Ensemble-large  96.10 60.81 85.92 71.11 94.26 64.64 91.46 60.51 78.10 27.67
"""
ROWS = [line.split() for line in ROSE_TABLE_1.strip().splitlines()]


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_every_row_of_the_table_in_the_rose_paper(row: list[str]) -> None:
    figures = [float(figure) for figure in row[1:]]
    found = glue_aggregates(
        dict(zip(TASKS, figures[0:8:2], strict=True)), dict(zip(TASKS, figures[1:8:2], strict=True))
    )
    exact = [Decimal(figure) for figure in row[1:9]]
    assert found.average == pytest.approx(float(sum(exact) / 8), abs=1e-9)
    assert found.drop == pytest.approx(float((sum(exact[::2]) - sum(exact[1::2])) / 4), abs=1e-9)
    # Printed with two decimals; half of the last one either way, whichever way a tie was rounded.
    assert found.average == pytest.approx(figures[8], abs=0.005 + 1e-9)
    assert found.drop == pytest.approx(figures[9], abs=0.005 + 1e-9)


def test_the_figure_of_the_rose_paper_that_differs_in_print() -> None:
    # Table 2, R-Drop + ROSE-Ensemble, large: 32.66 is printed.
    clean = dict(zip(TASKS, (96.72, 85.20, 94.81, 92.27), strict=True))
    adversarial = dict(zip(TASKS, (56.62, 69.13, 57.97, 54.61), strict=True))
    average, drop = glue_aggregates(clean, adversarial)
    assert (round(average, 2), round(drop, 2)) == (75.92, 32.67)


def test_all_rows_are_here() -> None:
    assert len(ROWS) == 16 and all(len(row) == 11 for row in ROWS)


def test_aggregates_need_the_same_tasks() -> None:
    with pytest.raises(DataError, match="same tasks on both sides; got RTE clean and QQP adversarial"):
        glue_aggregates({"RTE": 1.0}, {"QQP": 1.0})
    with pytest.raises(DataError, match="got none clean and none adversarial"):
        glue_aggregates({}, {})


RUNS = st.lists(st.floats(0, 1), min_size=2, max_size=8)


@given(RUNS)
@settings(max_examples=50, deadline=None)
def test_mean_and_deviation_by_definition(values: list[float]) -> None:
    mean, deviation = mean_and_deviation(values)
    assert mean == pytest.approx(math.fsum(values) / len(values), abs=1e-9)
    squares = math.fsum((value - mean) ** 2 for value in values)
    assert deviation == pytest.approx(math.sqrt(squares / (len(values) - 1)), abs=1e-9)


def test_one_run_has_no_deviation() -> None:
    mean, deviation = mean_and_deviation([0.5])
    assert mean == 0.5 and math.isnan(deviation)
    with pytest.raises(DataError, match="at least 1 run"):
        mean_and_deviation([])


@given(st.integers(0, 10_000), st.integers(2, 8), st.integers(2, 8))
@settings(max_examples=50, deadline=None)
def test_welch_agrees_with_scipy_and_with_its_formula(seed: int, many: int, others: int) -> None:
    rng = np.random.default_rng(seed)
    ours, theirs = rng.normal(0.92, 0.01, many), rng.normal(0.91, 0.03, others)
    found, reverse = welch(ours.tolist(), theirs.tolist()), welch(theirs.tolist(), ours.tolist())
    assert found is not None and reverse is not None
    assert found == pytest.approx(ttest_ind(ours, theirs, equal_var=False, alternative="greater").pvalue, abs=1e-9)
    a, b = ours.var(ddof=1) / many, theirs.var(ddof=1) / others
    freedom = (a + b) ** 2 / (a**2 / (many - 1) + b**2 / (others - 1))
    assert found == pytest.approx(t.sf((ours.mean() - theirs.mean()) / math.sqrt(a + b), freedom), abs=1e-9)
    assert found + reverse == pytest.approx(1)


def test_welch_without_variance() -> None:
    assert welch([0.9] * 5, [0.8] * 5) is None and welch([0.9] * 5, [0.9] * 3) is None
    p = welch([0.9] * 5, [0.80, 0.81])
    assert p is not None and 0 < p < 0.05  # one side varies: an ordinary test
    with pytest.raises(DataError, match=r"at least 2 run\(s\); got \[0.9\]"):
        welch([0.9], [0.8, 0.9])


def two_models(seed: int, examples: int = 200) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.random(examples) < 0.8, rng.random(examples) < 0.75


@pytest.mark.parametrize("seed", range(3))
def test_the_paired_interval_agrees_with_a_bootstrap_where_there_are_many(seed: int) -> None:
    a, b = two_models(seed, examples=2000)
    found = paired_difference(a, b)
    assert found.difference == pytest.approx(a.mean() - b.mean(), abs=1e-9)
    expected = bootstrap((a.astype(float) - b,), np.mean, n_resamples=5_000, method="percentile", rng=seed)
    assert found.low == pytest.approx(expected.confidence_interval.low, abs=0.003)
    assert found.high == pytest.approx(expected.confidence_interval.high, abs=0.003)
    mirrored = paired_difference(b, a)
    assert mirrored == pytest.approx((-found.difference, -found.high, -found.low))


def outcomes(both: int, only_a: int, only_b: int, neither: int) -> tuple[list[bool], list[bool]]:
    counts = ((True, True, both), (True, False, only_a), (False, True, only_b), (False, False, neither))
    rows = [(a, b) for a, b, count in counts for _ in range(count)]
    return [a for a, _ in rows], [b for _, b in rows]


def test_the_paired_interval_is_the_published_one() -> None:
    """Newcombe 1998, table III, method 10: 36, 12, 2 and 0 of 50."""
    found = paired_difference(*outcomes(36, 12, 2, 0))
    assert found == pytest.approx((0.2, 0.0569, 0.3404), abs=5e-5)


def test_no_paired_interval_is_a_point_or_ends_at_nothing_without_reason() -> None:
    for both, neither in ((20, 0), (0, 20), (15, 5), (1, 0)):
        found = paired_difference(*outcomes(both, 0, 0, neither))
        assert found.difference == 0 and found.low < -0.02 and found.high > 0.02, "no example tells them apart"
        assert found.high == pytest.approx(-found.low)
    worse = paired_difference(*outcomes(14, 0, 2, 4))
    assert worse.difference == pytest.approx(-0.1) and worse.high > 0.02, "two examples of 20 show no loss"
    assert paired_difference([True] * 10, [False] * 10)[0::2] == (1.0, 1.0)
    assert paired_difference([True] * 10, [False] * 10).low < 0.8


def test_mcnemar_by_definition() -> None:
    def outcome(only_a: int, only_b: int, both: int) -> float:
        a = [True] * only_a + [False] * only_b + [True] * both
        b = [False] * only_a + [True] * only_b + [True] * both
        return mcnemar(a, b)

    for only_a, only_b in [(0, 5), (3, 9), (10, 2), (7, 7), (1, 0)]:
        discordant = only_a + only_b
        tail = sum(math.comb(discordant, k) for k in range(min(only_a, only_b) + 1)) / 2**discordant
        for both in (0, 20):
            assert outcome(only_a, only_b, both) == pytest.approx(min(1, 2 * tail), abs=1e-9)
    assert outcome(0, 0, 4) == 1


@pytest.mark.parametrize("compare", [paired_difference, mcnemar])
def test_models_must_have_met_the_same_examples(compare: object) -> None:
    for a, b in (([True], [True, False]), ([], []), ([[True]], [[True]])):
        with pytest.raises(DataError, match="one truth value per example for both models"):
            compare(a, b)  # type: ignore[operator]


def test_holm_by_hand() -> None:
    adjusted = holm({"d": 0.04, "a": 0.01, "c": 0.03, "b": 0.005})
    assert adjusted == pytest.approx({"d": 0.06, "a": 0.03, "c": 0.06, "b": 0.02})
    assert list(adjusted) == ["d", "a", "c", "b"]
    assert holm({"x": 0.7, "y": 0.8}) == {"x": 1.0, "y": 1.0}
    assert holm({}) == {}
    with pytest.raises(DataError, match="p-values from 0 to 1; got nan for x"):
        holm({"x": math.nan})


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.floats(0.001, 0.999))
@settings(max_examples=100, deadline=None)
def test_holm_rejects_what_stepping_down_rejects(p_values: list[float], level: float) -> None:
    adjusted = list(holm({str(i): p for i, p in enumerate(p_values)}).values())
    rejected = set()
    for done, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        if (len(p_values) - done) * p_values[index] > level:
            break
        rejected.add(index)
    assert {index for index, p in enumerate(adjusted) if p <= level} == rejected


VANILLA = {"accuracy": 0.9, "shift": 0.8, "adversarial": 0.5, "ece": 0.1, "auroc": 0.6}
METHOD = {"accuracy": 0.95, "shift": 0.85, "adversarial": 0.6, "ece": 0.08, "auroc": 0.5}


def test_relative_improvement_by_hand() -> None:
    # 50 %, 25 %, 20 %, 20 % and -25 % of what vanilla lacks.
    assert relative_improvement(METHOD, VANILLA) == pytest.approx(18, abs=1e-9)
    assert relative_improvement(METHOD, VANILLA, FOUR_METRICS) == pytest.approx(10, abs=1e-9)
    assert relative_improvement(VANILLA, VANILLA) == 0
    perfect = {"accuracy": 1.0, "shift": 1.0, "adversarial": 1.0, "ece": 0.0, "auroc": 1.0}
    assert relative_improvement(perfect, VANILLA) == pytest.approx(100)
    assert set(FIVE_METRICS) - set(FOUR_METRICS) == {"accuracy"}


def test_what_cannot_be_improved_is_left_out() -> None:
    assert relative_improvement(METHOD, {**VANILLA, "accuracy": 1.0}) == pytest.approx(10, abs=1e-9)
    perfect = {"accuracy": 1.0, "shift": 1.0, "adversarial": 1.0, "ece": 0.0, "auroc": 1.0}
    with pytest.raises(DataError, match="vanilla is perfect by every metric"):
        relative_improvement(METHOD, perfect)


def test_ranks_by_hand() -> None:
    third = {**VANILLA, "auroc": 0.9}
    ranks = average_rank({"vanilla": VANILLA, "method": METHOD, "third": third})
    # vanilla: 2.5 2.5 2.5 2.5 2; method: 1 1 1 1 3; third: 2.5 2.5 2.5 2.5 1
    assert ranks == pytest.approx({"vanilla": 2.4, "method": 1.4, "third": 2.2})
    assert average_rank({"vanilla": VANILLA, "method": METHOD}, FOUR_METRICS) == {"vanilla": 1.75, "method": 1.25}
    with pytest.raises(DataError, match="no methods to rank"):
        average_rank({})


def test_metrics_are_shares_and_all_there() -> None:
    with pytest.raises(DataError, match="expected accuracy of the method as a share from 0 to 1; got 95"):
        relative_improvement({**METHOD, "accuracy": 95}, VANILLA)
    with pytest.raises(DataError, match="of vanilla; got accuracy"):
        relative_improvement(METHOD, {"accuracy": 0.5})
    with pytest.raises(DataError, match="expected the metrics speed"):
        average_rank({"method": METHOD}, ["speed"])


def test_the_interval_of_a_mean_over_seeds_is_students() -> None:
    assert t_interval([0.8, 0.9, 1.0]) == pytest.approx((0.9 - 0.1 * 4.302653 / 3**0.5, 0.9 + 0.1 * 4.302653 / 3**0.5))
    with pytest.raises(DataError, match="at least 2"):
        t_interval([0.8])


def test_intervals_over_seeds_are_bounded_and_only_where_seeds_can_tell() -> None:
    assert seed_interval([0.3, 0.3, 0.3]) is None, "not from 30.0 to 30.0"
    assert seed_interval([0.1, 0.9]) is None, "two seeds give nearly everything, or beyond"
    assert seed_interval([0.5]) is None
    low, high = t_interval([0.05, 0.5, 0.95])
    assert low < 0 and high > 1 and seed_interval([0.05, 0.5, 0.95]) == (0.0, 1.0)
    assert seed_interval([-0.9, 0.0, 0.9], (-1.0, 1.0)) == (-1.0, 1.0)
    assert seed_interval([0.8, 0.81, 0.82]) == t_interval([0.8, 0.81, 0.82]), "inside, nothing is cut"
