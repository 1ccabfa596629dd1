"""Algorithm 1 of ROSE written as slowly and plainly as possible, to check the engine against.

Nothing here comes from the library: own forward passes, own divergence, own risks, own masks, own update. Only
`model(**batch).logits` and `torch.autograd.grad` are borrowed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, log_softmax

Batch = dict[str, Tensor]
Tensors = dict[str, Tensor]


@dataclass
class Settings:
    """What a run of Algorithm 1 needs to know; the defaults are those of the official code."""

    variant: str  # first | second | ensemble
    steps: int
    first: tuple[float, float] = (0.0, 0.6)
    second: tuple[float, float] = (0.0, 0.6)
    gamma: float = 0.5
    passes: int = 2
    count: str = "interpolated"  # interpolated | floor
    risk_gradient: str = "clipped"  # clipped | raw
    level: str = "tensor"  # tensor | element
    form: str = "torch"  # torch | hf
    unmasked_steps: int = 0
    learning_rate: float = 1e-3
    rate_warmup: int = 0
    betas: tuple[float, float] = (0.9, 0.98)
    epsilon: float = 1e-6
    decay: float = 0.01
    clip: float = 1.0


@dataclass
class Oracle:
    """Runs the algorithm on `model`; `step` takes the micro-batches of one optimiser step."""

    model: nn.Module
    settings: Settings
    candidates: set[str]
    undecayed: set[str]
    t: int = 0
    m: Tensors = field(default_factory=dict)
    v: Tensors = field(default_factory=dict)
    masks: list[dict[str, float | Tensor]] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)

    def step(self, micro_batches: list[Batch]) -> None:
        s = self.settings
        self.t += 1
        gradient, divergence = self.gradients(micro_batches)
        clipped = self.clip(gradient)
        self.update(clipped, self.mask(clipped if s.risk_gradient == "clipped" else gradient, divergence))

    def gradients(self, micro_batches: list[Batch]) -> tuple[Tensors, Tensors]:
        """Lines 4 and 5: the gradient that moves the weights and the one that is only read."""
        names, parameters = zip(*self.model.named_parameters(), strict=True)
        gradient = {name: torch.zeros_like(p) for name, p in zip(names, parameters, strict=True)}
        divergence = {name: torch.zeros_like(p) for name, p in zip(names, parameters, strict=True)}
        probes = self.settings.variant != "second"
        for batch in micro_batches:
            inputs = {key: value for key, value in batch.items() if key != "labels"}
            first = self.model(**inputs).logits
            loss = cross_entropy(first, batch["labels"])
            if probes:
                second = self.model(**inputs).logits
                kl = symmetric_kl(first, second)
                for name, g in zip(names, torch.autograd.grad(kl, parameters, retain_graph=True), strict=True):
                    divergence[name] += g / len(micro_batches)
                if self.settings.passes == 2:
                    loss = loss / 2 + cross_entropy(second, batch["labels"]) / 2
            for name, g in zip(names, torch.autograd.grad(loss, parameters), strict=True):
                gradient[name] += g / len(micro_batches)
        return gradient, divergence

    def clip(self, gradient: Tensors) -> Tensors:
        norm = sum(float((g**2).sum()) for g in gradient.values()) ** 0.5
        self.norms.append(norm)
        factor = min(1.0, self.settings.clip / (norm + 1e-6))
        return {name: g * factor for name, g in gradient.items()}

    def mask(self, gradient: Tensors, divergence: Tensors) -> dict[str, float | Tensor]:
        """Lines 5 to 7, one number a candidate tensor (or one tensor of numbers)."""
        s = self.settings
        order = sorted(self.candidates)
        everything: dict[str, float | Tensor] = dict.fromkeys(self.candidates, 1.0)
        if s.level == "element":
            everything = {n: torch.ones_like(gradient[n]) for n in order}
        if self.t <= s.unmasked_steps:
            return self.remember(everything)
        first = second = everything
        if s.variant != "second":
            first = self.between({n: self.size(divergence[n]) for n in order}, *s.first)
        if s.variant != "first" and self.m:
            alpha = 1 - s.betas[0]
            risks = {n: abs(alpha * self.size(gradient[n]) / self.size(self.m[n]) - 1) for n in order}
            second = self.between(risks, *s.second)
        if s.variant == "first":
            return self.remember(first)
        if s.variant == "second":
            return self.remember(second)
        return self.remember({n: s.gamma * first[n] + (1 - s.gamma) * second[n] for n in order})

    def size(self, tensor: Tensor) -> np.ndarray:
        if self.settings.level == "element":
            return tensor.abs().numpy()
        return np.sqrt((tensor.numpy() ** 2).sum())

    def between(self, risks: dict[str, np.ndarray], lower: float, upper: float) -> dict[str, float | Tensor]:
        every = np.concatenate([np.ravel(risk) for risk in risks.values()])
        if self.settings.count == "floor":
            # Eq. 3: the i-th smallest of n is kept when i/n <= upper.
            kept = int(np.floor(upper * len(every) + 1e-9))
            low, high = -np.inf, (np.sort(every)[kept - 1] if kept else -np.inf)
            assert lower == 0
        else:
            low, high = np.quantile(every, [lower, upper], method="linear")
        inside = {name: (low <= risk) & (risk <= high) for name, risk in risks.items()}
        if self.settings.level == "element":
            return {name: torch.from_numpy(np.asarray(keep, dtype=float)) for name, keep in inside.items()}
        return {name: float(keep) for name, keep in inside.items()}

    def remember(self, masks: dict[str, float | Tensor]) -> dict[str, float | Tensor]:
        self.masks.append(masks)
        return masks

    def rate(self) -> float:
        """Linear warm-up from 0, then linear decay to 0; the first step has index 0."""
        s, index = self.settings, self.t - 1
        if index < s.rate_warmup:
            return s.learning_rate * index / s.rate_warmup
        return s.learning_rate * (s.steps - index) / (s.steps - s.rate_warmup)

    @torch.no_grad()
    def update(self, gradient: Tensors, masks: dict[str, float | Tensor]) -> None:
        """Lines 8 to 13."""
        s, rate, (b1, b2) = self.settings, self.rate(), self.settings.betas
        for name, theta in self.model.named_parameters():
            mask = masks.get(name, 1.0)
            decay = 0.0 if name in self.undecayed else s.decay
            m = self.m.get(name, torch.zeros_like(theta))
            v = self.v.get(name, torch.zeros_like(theta))
            g = mask * gradient[name] + (1 - mask) * m
            m = self.m[name] = b1 * m + (1 - b1) * g
            v = self.v[name] = b2 * v + (1 - b2) * g**2
            theta.copy_(moved(theta, m, v, mask, rate, decay, self.t, s))


@dataclass
class CheaperOracle(Oracle):
    """Reads the divergence on some rows of each micro-batch, in every few steps; the loss has one pass."""

    rows: list[int] = field(default_factory=list)  # none: all rows, against the pass of the loss
    every: int = 1
    kept: Tensors = field(default_factory=dict)

    def gradients(self, micro_batches: list[Batch]) -> tuple[Tensors, Tensors]:
        masked_steps = self.t - 1 - self.settings.unmasked_steps
        due = masked_steps >= 0 and masked_steps % self.every == 0
        names, parameters = zip(*self.model.named_parameters(), strict=True)
        gradient = [torch.zeros_like(p) for p in parameters]
        divergence = [torch.zeros_like(p) for p in parameters]
        for batch in micro_batches:
            inputs = {key: value for key, value in batch.items() if key != "labels"}
            first = self.model(**inputs).logits
            if due:
                part = {key: value[self.rows] for key, value in inputs.items()} if self.rows else inputs
                left = self.model(**part).logits if self.rows else first
                kl = symmetric_kl(left, self.model(**part).logits)
                read = torch.autograd.grad(kl, parameters, retain_graph=True)
                divergence = [d + g / len(micro_batches) for d, g in zip(divergence, read, strict=True)]
            found = torch.autograd.grad(cross_entropy(first, batch["labels"]), parameters)
            gradient = [d + g / len(micro_batches) for d, g in zip(gradient, found, strict=True)]
        if due:
            self.kept = dict(zip(names, divergence, strict=True))
        return dict(zip(names, gradient, strict=True)), self.kept


def moved(
    theta: Tensor, m: Tensor, v: Tensor, mask: float | Tensor, rate: float, decay: float, t: int, s: Settings
) -> Tensor:
    """Line 13, or the last two lines of the old Hugging Face AdamW."""
    b1, b2 = s.betas
    if s.form == "torch":
        m_hat, v_hat = m / (1 - b1**t), v / (1 - b2**t)
        return theta - rate * (m_hat / (v_hat.sqrt() + s.epsilon) + decay * theta) * mask
    step = rate * (1 - b2**t) ** 0.5 / (1 - b1**t)
    theta = theta - step * mask * m / (v.sqrt() + s.epsilon)
    return theta - rate * decay * mask * theta


def symmetric_kl(first: Tensor, second: Tensor) -> Tensor:
    """Eq. 1, averaged over the batch; the scale cannot matter."""
    p, q = log_softmax(first, -1), log_softmax(second, -1)
    return ((p.exp() - q.exp()) * (p - q)).sum(-1).mean()


def bert_candidates(names: Iterable[str]) -> set[str]:
    """The official code's rule, which is right on BERT and RoBERTa."""
    return {name for name in names if "layer" in name and "weight" in name}


def undecayed(names: Iterable[str]) -> set[str]:
    return {name for name in names if "bias" in name or "LayerNorm" in name}
