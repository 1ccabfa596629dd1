"""Kept counts, with the exact fractions of what someone typed as oracle."""

import math
from fractions import Fraction

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rosewood.tensors.statistics import five_numbers, keep_between

INF = math.inf


def exact(value: float) -> Fraction:
    """The decimal number that someone typed, not its binary neighbour."""
    return Fraction(str(value))


@settings(max_examples=300, deadline=None)
@given(n=st.integers(1, 400), percent=st.integers(0, 100), seed=st.integers(0, 10**6))
def test_kept_count_of_the_official_code(n: int, percent: int, seed: int) -> None:
    upper = percent / 100
    risk = np.random.default_rng(seed).permutation(n).astype(float)
    mask = keep_between(torch.from_numpy(risk), (0.0, upper), "interpolated").numpy()
    assert mask.sum() == math.floor(exact(upper) * (n - 1)) + 1
    # The tolerance forgives numpy's own rounding of 0.29 * 100.
    assert (mask == (risk <= np.quantile(risk, upper, method="linear") + 1e-9)).all()


@settings(max_examples=300, deadline=None)
@given(n=st.integers(1, 400), percents=st.tuples(st.integers(0, 100), st.integers(0, 100)), seed=st.integers(0, 99))
def test_two_bounds_are_those_of_the_linear_quantile(n: int, percents: tuple[int, int], seed: int) -> None:
    lower, upper = sorted(percent / 100 for percent in percents)
    risk = np.random.default_rng(seed).permutation(n).astype(float)
    low, high = np.quantile(risk, [lower, upper], method="linear")
    mask = keep_between(torch.from_numpy(risk), (lower, upper), "interpolated").numpy()
    assert (mask == ((risk >= low - 1e-9) & (risk <= high + 1e-9))).all()


@settings(max_examples=300, deadline=None)
@given(n=st.integers(1, 400), percent=st.integers(0, 100), seed=st.integers(0, 10**6))
def test_kept_count_of_the_paper(n: int, percent: int, seed: int) -> None:
    upper = percent / 100
    risk = np.random.default_rng(seed).permutation(n).astype(float)
    mask = keep_between(torch.from_numpy(risk), (0.0, upper), "floor").numpy()
    assert mask.sum() == math.floor(exact(upper) * n)
    # Eq. 3: the i-th smallest, counted from 1, is kept when i/n <= c.
    assert (mask == [Fraction(int(rank) + 1, n) <= exact(upper) for rank in risk]).all()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from([0.0, 1.0, 2.0, INF]), min_size=1, max_size=40), st.integers(0, 100))
def test_a_mask_without_lower_bound_is_never_empty(risks: list[float], percent: int) -> None:
    mask = keep_between(torch.tensor(risks), (0.0, percent / 100), "interpolated")
    assert mask.any()
    worst = max(risk for risk, keep in zip(risks, mask.tolist(), strict=True) if keep)
    assert all(keep == (risk <= worst) for risk, keep in zip(risks, mask.tolist(), strict=True))


def test_five_numbers_are_order_statistics() -> None:
    assert five_numbers(torch.tensor([4.0, 0.0, 3.0, INF, 2.0])).tolist() == [0.0, 2.0, 3.0, 4.0, INF]
    assert five_numbers(torch.tensor([7.0])).tolist() == [7.0] * 5
