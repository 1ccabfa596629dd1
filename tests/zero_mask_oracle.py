"""Training with masked gradients, written as slowly and plainly as possible, to check the engine against.

Child-Tuning and RoAST mask the gradient and nothing else: moments, update and decay are AdamW's. Nothing here comes
from the library, but for the random numbers, which must be the same to compare.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from rosewood.protocol import Run
from rosewood.recipe import load_recipe
from tiny import Recording, TinyData, arguments, tiny_bert

Draw = tuple[Tensor, dict[str, Tensor]]
Arrays = dict[str, np.ndarray]


class Observed(Recording):
    """A Recording that also remembers the pass before training and, in every step, the masked gradients."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.first_pass: list[tuple[Tensor, list[dict[str, Tensor]]]] = []

    def _training_steps(self) -> Iterator[Any]:
        for step in super()._training_steps():
            self.first_pass.append((torch.get_rng_state(), [dict(batch) for batch in step]))
            yield step


def observed(
    recipe: Any, directory: Any, model: nn.Module | None = None, data: Any = None, **settings: Any
) -> Observed:
    trainer = Observed(
        model=tiny_bert() if model is None else model,
        args=arguments(directory, **settings),
        train_dataset=TinyData() if data is None else data,
        recipe=recipe,
    )
    trainer.train()
    return trainer


def generator(*key: int | str) -> torch.Generator:
    """The library's random numbers for a key, seed 0."""
    stage = load_recipe("vanilla").all_stages()[0]
    return Run(nn.Linear(1, 1), 1, stage, seed=0).generator(*key)


def gradients_of(model: nn.Module, state: Tensor, batches: list[dict[str, Tensor]]) -> Arrays:
    """Gradients of the mean cross-entropy of some batches, with the dropout that the engine drew for them."""
    torch.set_rng_state(state)
    names, parameters = zip(*model.named_parameters(), strict=True)
    total: Arrays = dict.fromkeys(names, np.zeros(()))
    for batch in batches:
        logits = model(**{key: value for key, value in batch.items() if key != "labels"}).logits
        found = torch.autograd.grad(cross_entropy(logits, batch["labels"]), parameters)
        total = {name: total[name] + g.numpy() / len(batches) for name, g in zip(names, found, strict=True)}
    return total


def in_blocks(model: nn.Module) -> list[str]:
    """The official candidates of Child-Tuning-D and RoAST, right on BERT and RoBERTa."""
    return [name for name, _ in model.named_parameters() if "layer" in name]


def flat(arrays: Arrays, names: list[str]) -> np.ndarray:
    return np.concatenate([arrays[name].ravel() for name in names])


def unflat(values: np.ndarray, arrays: Arrays, names: list[str]) -> Arrays:
    cuts = np.cumsum([arrays[name].size for name in names])[:-1]
    return {n: piece.reshape(arrays[n].shape) for n, piece in zip(names, np.split(values, cuts), strict=True)}


@dataclass
class Oracle:
    """AdamW with linear decay of the rate; `mask` gets the unclipped gradients and gives their multipliers."""

    model: nn.Module
    steps: int
    mask: Callable[[Arrays, int], Arrays]
    clip: float = 1.0
    rate: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.98)
    epsilon: float = 1e-6
    decay: float = 0.01
    t: int = 0
    m: Arrays = field(default_factory=dict)
    v: Arrays = field(default_factory=dict)

    def step(self, micro_batches: list[Draw]) -> None:
        parts = [gradients_of(self.model, state, [batch]) for state, batch in micro_batches]
        gradient = {name: sum(part[name] for part in parts) / len(parts) for name in parts[0]}
        masks = self.mask(gradient, self.t)
        norm = np.sqrt(sum((g**2).sum() for g in gradient.values()))
        factor = min(1.0, self.clip / (norm + 1e-6)) if self.clip else 1.0
        rate = self.rate * (self.steps - self.t) / self.steps
        self.t += 1
        for name, parameter in self.model.named_parameters():
            g = gradient[name] * factor * masks.get(name, 1.0)
            theta = parameter.detach().numpy()
            m = self.m[name] = self.betas[0] * self.m.get(name, 0.0) + (1 - self.betas[0]) * g
            v = self.v[name] = self.betas[1] * self.v.get(name, 0.0) + (1 - self.betas[1]) * g**2
            m_hat, v_hat = m / (1 - self.betas[0] ** self.t), v / (1 - self.betas[1] ** self.t)
            decay = 0.0 if "bias" in name or "LayerNorm" in name else self.decay
            theta -= rate * (m_hat / (np.sqrt(v_hat) + self.epsilon) + decay * theta)

    def follow(self, trainer: Recording, micro_batches: int = 1) -> None:
        """Take the steps that a trainer took and compare where both end."""
        draws = trainer.micro_batches
        for start in range(0, len(draws), micro_batches):
            self.step(draws[start : start + micro_batches])
        assert self.t == self.steps
        expected = dict(self.model.named_parameters())
        for name, parameter in trainer.model.named_parameters():
            torch.testing.assert_close(parameter, expected[name], rtol=0, atol=1e-9, msg=lambda t, n=name: f"{n}: {t}")
