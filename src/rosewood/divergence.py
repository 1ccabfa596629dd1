"""Divergences between the predictions of two passes, computed from log-probabilities in float32 or better."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional


def one_output_problems(model: nn.Module, user: str) -> list[str]:
    """Why a divergence of predictions makes no sense on this model; nothing if it does."""
    if getattr(getattr(model, "config", None), "num_labels", 2) > 1:
        return []
    return [
        f"{user} compares predicted probabilities, and {type(model).__name__} has a single output (regression), whose "
        "probability is always 1: use a classifier, or another component"
    ]


def log_probabilities(logits: Tensor) -> Tensor:
    """Log-softmax over the classes, `(examples, classes)`."""
    dtype = torch.promote_types(logits.dtype, torch.float32)
    return functional.log_softmax(logits.flatten(0, -2), dim=-1, dtype=dtype)


def symmetric_kl(first: Tensor, second: Tensor) -> Tensor:
    """KL(p || q) + KL(q || p), averaged over the examples (ROSE Eq. 1 up to the factor 1/batch)."""
    log_p, log_q = log_probabilities(first), log_probabilities(second)
    return ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum(-1).mean()


def forward_kl(first: Tensor, second: Tensor) -> Tensor:
    """KL(p || q), averaged over the examples."""
    return _kl(log_probabilities(first), log_probabilities(second))


def midpoint_kl(first: Tensor, second: Tensor) -> Tensor:
    """(KL(m || p) + KL(m || q)) / 2 with m = (p + q) / 2, averaged over the examples.

    HiddenCut's "Jensen-Shannon": the arguments are the other way round than in the divergence of that name.
    """
    log_p, log_q = log_probabilities(first), log_probabilities(second)
    log_m = torch.logaddexp(log_p, log_q) - math.log(2)
    return (_kl(log_m, log_p) + _kl(log_m, log_q)) / 2


def _kl(log_p: Tensor, log_q: Tensor) -> Tensor:
    return (log_p.exp() * (log_p - log_q)).sum(-1).mean()
