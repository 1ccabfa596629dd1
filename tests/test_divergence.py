"""Divergences against numpy and scipy, and where a naive formula breaks down."""

import numpy as np
import pytest
import torch
from scipy.special import rel_entr, softmax

from rosewood.divergence import forward_kl, midpoint_kl, symmetric_kl

Z = np.random.default_rng(0).normal(size=(2, 6, 3)) * 3
P, Q = softmax(Z, axis=-1)
M = (P + Q) / 2


def kl(p: np.ndarray, q: np.ndarray) -> float:
    return float(rel_entr(p, q).sum(-1).mean())


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (forward_kl, kl(P, Q)),
        (symmetric_kl, kl(P, Q) + kl(Q, P)),
        (midpoint_kl, (kl(M, P) + kl(M, Q)) / 2),
    ],
)
def test_against_scipy(function: object, expected: float) -> None:
    first, second = torch.from_numpy(Z)
    assert float(function(first, second)) == pytest.approx(expected, rel=1e-12)  # type: ignore[operator]
    assert float(function(first, first)) == pytest.approx(0, abs=1e-15)  # type: ignore[operator]
    token_wise = function(first.view(2, 3, 3), second.view(2, 3, 3))  # type: ignore[operator]
    assert float(token_wise) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("function", [forward_kl, symmetric_kl, midpoint_kl])
def test_probabilities_that_are_zero_in_floating_point(function: object) -> None:
    first = torch.tensor([[500.0, -500.0]], requires_grad=True)
    value = function(first, -first)  # type: ignore[operator]
    value.backward()
    assert torch.isfinite(value)
    assert torch.isfinite(first.grad).all()


def test_half_precision_is_computed_in_float32() -> None:
    first, second = torch.from_numpy(Z).to(torch.bfloat16)
    assert midpoint_kl(first, second).dtype == forward_kl(first, second).dtype == torch.float32
