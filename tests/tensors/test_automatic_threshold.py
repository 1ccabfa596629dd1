"""The rules that find a threshold in the risks, against slow transcriptions and what must hold for any risks."""

import json
import math
from pathlib import Path
from statistics import fmean
from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rosewood.tensors.statistics import RULES, RuleName, keep_low
from slow_thresholds import slowly_kept

INF = math.inf
STUDY = Path(__file__).parent.parent.parent / "experiments" / "results" / "rose-threshold.json"
NAMES = get_args(RuleName)
every_rule = pytest.mark.parametrize("rule", NAMES)
# Whole numbers, so that two risks are equal or differ by more than rounding.
positive = st.integers(1, 10**6).map(float)
risks_of_any_kind = st.lists(st.one_of(positive, st.sampled_from([0.0, 1.0, 2.0, INF])), min_size=1, max_size=60)


def kept(risks: list[float], rule: RuleName) -> list[bool]:
    return keep_low(torch.tensor(risks, dtype=torch.float64), rule).bool().tolist()


def test_auto_is_the_rule_that_did_best() -> None:
    assert set(RULES) == set(NAMES)
    cells = json.loads(STUDY.read_text())["cells"]
    scores = {
        rule: fmean(cell["choice"] for cell in cells if cell["threshold"] == rule) for rule in NAMES if rule != "auto"
    }
    assert RULES["auto"] is RULES[max(scores, key=scores.__getitem__)]


@every_rule
@settings(max_examples=300, deadline=None)
@given(risks=risks_of_any_kind)
def test_the_slow_transcription_agrees(rule: RuleName, risks: list[float]) -> None:
    assert kept(risks, rule) == slowly_kept(risks, rule)


def test_a_cut_between_equals_counts_for_nothing() -> None:
    """Between the first two of 259 the groups would differ most, and there is no such threshold."""
    assert kept([1.0, *[259.0] * 7, 260.0, 660.0, INF], "otsu") == [True] * 9 + [False] * 2


@every_rule
@settings(max_examples=100, deadline=None)
@given(risks=risks_of_any_kind, scale=st.floats(1e-12, 1e12))
def test_the_scale_does_not_matter(rule: RuleName, risks: list[float], scale: float) -> None:
    assert kept([risk * scale for risk in risks], rule) == kept(risks, rule)


@every_rule
@settings(max_examples=100, deadline=None)
@given(data=st.data(), risks=risks_of_any_kind)
def test_the_order_does_not_matter(rule: RuleName, data: st.DataObject, risks: list[float]) -> None:
    where = data.draw(st.permutations(range(len(risks))))
    found = kept(risks, rule)
    assert kept([risks[i] for i in where], rule) == [found[i] for i in where]


@every_rule
@settings(max_examples=200, deadline=None)
@given(risks=risks_of_any_kind)
def test_it_is_a_threshold_that_keeps_a_tenth_and_zeros_and_infinities_only_if_it_must(
    rule: RuleName, risks: list[float]
) -> None:
    found = kept(risks, rule)
    worst = max(risk for risk, keep in zip(risks, found, strict=True) if keep)
    assert found == [risk <= worst for risk in risks]
    assert sum(found) >= len(risks) / 10
    assert all(keep for risk, keep in zip(risks, found, strict=True) if risk == 0)
    few_finite = sum(risk < INF for risk in risks) < len(risks) / 10
    assert (worst == INF) == few_finite


@every_rule
@pytest.mark.parametrize("value", [0.0, 3e-30, 1.0, INF])
@pytest.mark.parametrize("count", [1, 2, 48])
def test_equal_risks_keep_everything(rule: RuleName, value: float, count: int) -> None:
    assert all(kept([value] * count, rule))


@every_rule
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("low", [12, 30, 40])
def test_two_clusters_are_split_between_them(rule: RuleName, dtype: torch.dtype, low: int) -> None:
    generator = torch.Generator().manual_seed(low)
    height = torch.tensor([1e-3] * low + [1e-1] * (48 - low), dtype=dtype)
    mask = keep_low(height * (1 + 0.3 * torch.rand(48, generator=generator, dtype=dtype)), rule)
    assert mask.dtype == dtype
    # For the outlier rule a group is no outlier unless most of the risks are elsewhere.
    expected = 48 if rule in ("auto", "outliers") and low < 24 else low
    assert mask.tolist() == [1.0] * expected + [0.0] * (48 - expected)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [("otsu", [1, 2, 3]), ("outliers", [1, 2, 3, 40, 60, 70]), ("gap", [1, 2, 3])],
)
def test_the_rules_by_hand(rule: RuleName, expected: list[float]) -> None:
    risks = [40.0, 1.0, INF, 3.0, 60.0, 2.0, 70.0]
    assert sorted(risk for risk, keep in zip(risks, kept(risks, rule), strict=True) if keep) == expected


@pytest.mark.parametrize("rule", ["otsu", "gap"])
def test_of_equally_good_cuts_the_higher_one_counts(rule: RuleName) -> None:
    assert kept([1.0, 2.0, 4.0], rule) == [True, True, False]


@every_rule
def test_single_outliers_at_the_bottom_do_not_freeze_the_rest_below_a_tenth(rule: RuleName) -> None:
    risks = [1e-30, *(1.0 + 0.01 * i for i in range(29))]
    assert sum(kept(risks, rule)) >= 3


@every_rule
def test_millions_of_single_weights(rule: RuleName) -> None:
    generator = torch.Generator().manual_seed(0)
    normal = torch.randn(1_000_000, generator=generator)
    share = float(keep_low(normal.exp(), rule).mean())
    wanted = {"otsu": 0.5, "auto": 0.97725, "outliers": 0.97725}
    if rule in wanted:
        assert share == pytest.approx(wanted[rule], abs=0.01)
    assert 0.1 <= share <= 1
