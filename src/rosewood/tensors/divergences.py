"""Divergences of predictions: how far two passes of a model differ.

A divergence compares log-probabilities in float32 or better. Logits are `(predictions, classes)`, or
`(predictions, labels, 2)` where a prediction is made of independent yes-or-no distributions: there the divergence of a
prediction is the sum over its labels. What comes out is the mean over the predictions, that is over the examples, or
over the counted tokens of a token task, just like the model's own cross-entropy; without any prediction it is 0.
`Output.predictions` gives such logits.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional


def divergence_problems(model: nn.Module, user: str) -> list[str]:
    """Why a divergence of predictions makes no sense on this model; nothing if it does."""
    name, config = type(model).__name__, getattr(model, "config", None)
    problem = getattr(config, "problem_type", None)
    if problem == "regression" or (getattr(config, "num_labels", 2) == 1 and problem != "multi_label_classification"):
        return [
            f"{user} compares predicted probabilities, and {name} predicts a number (regression, or a single label): "
            "use a classifier, or another component"
        ]
    if getattr(model, "loss_type", None) == "ForQuestionAnswering":
        return [
            f"{user} compares predicted classes, and {name} predicts where an answer starts and ends: use a "
            "classifier, or another component"
        ]
    return []


def log_probabilities(logits: Tensor) -> Tensor:
    """Log-softmax over the classes, of the same shape."""
    return functional.log_softmax(logits, dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32))


def symmetric_kl(first: Tensor, second: Tensor) -> Tensor:
    """KL(p || q) + KL(q || p), averaged over the predictions (ROSE Eq. 1 up to the factor 1/batch)."""
    log_p, log_q = log_probabilities(first), log_probabilities(second)
    return _mean((log_p.exp() - log_q.exp()) * (log_p - log_q))


def forward_kl(first: Tensor, second: Tensor) -> Tensor:
    """KL(p || q), averaged over the predictions."""
    return _kl(log_probabilities(first), log_probabilities(second))


def log_odds_gap(first: Tensor, second: Tensor, smoothing: float = 1e-6) -> Tensor:
    """2 sum_c q_c (log-odds of q_c - log-odds of p_c), averaged over the predictions: mt-dnn's `stable_kl`.

    The log-odds log(q / (1 - q)), smoothed as there, are constants, so a gradient reaches `second` through the factor
    q alone. For two classes it is 4 times that of KL(q || p).
    """
    p, q = log_probabilities(first).exp(), log_probabilities(second).exp()
    p_odds, q_odds = (-(1 / (each.detach() + smoothing) - 1 + smoothing).log() for each in (p, q))
    return _mean(2 * q * (q_odds - p_odds))


def midpoint_kl(first: Tensor, second: Tensor) -> Tensor:
    """(KL(m || p) + KL(m || q)) / 2 with m = (p + q) / 2, averaged over the predictions.

    HiddenCut's "Jensen-Shannon": the arguments are the other way round than in the divergence of that name.
    """
    log_p, log_q = log_probabilities(first), log_probabilities(second)
    log_m = torch.logaddexp(log_p, log_q) - math.log(2)
    return (_kl(log_m, log_p) + _kl(log_m, log_q)) / 2


def _kl(log_p: Tensor, log_q: Tensor) -> Tensor:
    return _mean(log_p.exp() * (log_p - log_q))


def _mean(parts: Tensor) -> Tensor:
    """The sum over everything that belongs to a prediction, averaged over the predictions."""
    return parts.flatten(1).sum(1).sum() / max(len(parts), 1)
