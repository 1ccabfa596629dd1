"""Divergences against numpy and scipy, and where a naive formula breaks down."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
import transformers as hf
from scipy.special import expit, rel_entr, softmax
from torch import Tensor

from rosewood.tensors.divergence import divergence_problems, forward_kl, midpoint_kl, symmetric_kl
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
