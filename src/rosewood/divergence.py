"""Divergences between the predictions of two passes, computed from log-probabilities in float32 or better."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def log_probabilities(logits: Tensor) -> Tensor:
    """Log-softmax over the classes, `(examples, classes)`."""
    dtype = torch.promote_types(logits.dtype, torch.float32)
    return functional.log_softmax(logits.flatten(0, -2), dim=-1, dtype=dtype)


def symmetric_kl(first: Tensor, second: Tensor) -> Tensor:
    """KL(p || q) + KL(q || p), averaged over the examples (ROSE Eq. 1 up to the factor 1/batch)."""
    log_p, log_q = log_probabilities(first), log_probabilities(second)
    return ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum(-1).mean()
