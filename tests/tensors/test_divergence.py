"""Divergences against numpy and scipy, and where a naive formula breaks down."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
import transformers as hf
from scipy.special import expit, logit, rel_entr, softmax
from torch import Tensor

from rosewood.tensors.divergences import divergence_problems, forward_kl, log_odds_gap, midpoint_kl, symmetric_kl
from tiny import tiny_bert

Z = np.random.default_rng(0).normal(size=(2, 6, 3)) * 3
P, Q = softmax(Z, axis=-1)
Divergence = Callable[[Tensor, Tensor], Tensor]
DIVERGENCES: list[Divergence] = [forward_kl, symmetric_kl, midpoint_kl]
every_divergence = pytest.mark.parametrize("function", DIVERGENCES, ids=lambda function: function.__name__)


def kl(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    return rel_entr(p, q).sum(-1)


def expected(function: Divergence, p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """The divergence of each pair of distributions, whose classes are the last axis."""
    if function is forward_kl:
        return kl(p, q)
    if function is symmetric_kl:
        return kl(p, q) + kl(q, p)
    middle = (p + q) / 2
    return (kl(middle, p) + kl(middle, q)) / 2


@every_divergence
def test_against_scipy(function: Divergence) -> None:
    first, second = torch.from_numpy(Z)
    assert float(function(first, second)) == pytest.approx(expected(function, P, Q).mean(), rel=1e-12)
    assert float(function(first, first)) == pytest.approx(0, abs=1e-15)


def test_the_gap_between_log_odds_by_hand() -> None:
    """2 sum q (logit q - logit p); both logits are constants, so d / d z_k = 2 q_k (gap_k - sum_c q_c gap_c)."""
    first, second = (each.clone().requires_grad_() for each in torch.from_numpy(Z))
    value = log_odds_gap(first, second, smoothing=0)
    gap = logit(Q) - logit(P)
    assert value.item() == pytest.approx(2 * (Q * gap).sum(-1).mean(), rel=1e-12)
    value.backward()
    slope = 2 * Q * (gap - (Q * gap).sum(-1, keepdims=True)) / len(Q)
    np.testing.assert_allclose(second.grad, slope, rtol=1e-10)
    assert first.grad is None or not first.grad.any()


def test_for_two_classes_the_slope_of_the_gap_is_four_times_that_of_kl() -> None:
    first, second = torch.from_numpy(Z[:, :, :2])
    slopes = []
    for function in (lambda p, q: log_odds_gap(p, q, smoothing=0), lambda p, q: forward_kl(q, p)):
        moved = second.clone().requires_grad_()
        function(first, moved).backward()
        slopes.append(moved.grad)
    torch.testing.assert_close(slopes[0], 4 * slopes[1], rtol=1e-9, atol=0)


@every_divergence
def test_several_distributions_of_one_prediction_add_up(function: Divergence) -> None:
    """Yes-or-no distributions of several labels: Bernoulli, from logits z as softmax(z, 0)."""
    first, second = torch.from_numpy(Z)
    yes = expit(Z)
    bernoulli = expected(function, *np.stack([yes, 1 - yes], axis=-1)).sum(-1).mean()
    pairs = [torch.stack([z, torch.zeros_like(z)], dim=-1) for z in (first, second)]
    assert float(function(*pairs)) == pytest.approx(bernoulli, rel=1e-12)


@every_divergence
def test_probabilities_that_are_zero_in_floating_point(function: Divergence) -> None:
    first = torch.tensor([[500.0, -500.0]], requires_grad=True)
    value = function(first, -first)
    value.backward()
    assert torch.isfinite(value)
    assert torch.isfinite(first.grad).all()


@every_divergence
def test_no_prediction_at_all_is_no_divergence(function: Divergence) -> None:
    logits = torch.zeros(4, 3, requires_grad=True)
    none = torch.zeros(4, dtype=torch.bool)
    value = function(logits[none], logits[none] + 1)
    value.backward()
    assert value == 0
    assert torch.equal(logits.grad, torch.zeros(4, 3))


def test_half_precision_is_computed_in_float32() -> None:
    first, second = torch.from_numpy(Z).to(torch.bfloat16)
    assert midpoint_kl(first, second).dtype == forward_kl(first, second).dtype == torch.float32


def test_models_that_predict_no_classes_are_refused() -> None:
    number = (
        "objective x compares predicted probabilities, and BertForSequenceClassification predicts a number "
        "(regression, or a single label): use a classifier, or another component"
    )
    assert divergence_problems(tiny_bert(num_labels=1), "objective x") == [number]
    assert divergence_problems(tiny_bert(num_labels=3, problem_type="regression"), "objective x") == [number]
    assert divergence_problems(tiny_bert(num_labels=1, problem_type="multi_label_classification"), "objective x") == []
    assert divergence_problems(tiny_bert(), "objective x") == []
    spans = hf.BertForQuestionAnswering(tiny_bert().config)
    assert divergence_problems(spans, "anchor y") == [
        "anchor y compares predicted classes, and BertForQuestionAnswering predicts where an answer starts and ends: "
        "use a classifier, or another component"
    ]
