"""What the four parts of a recipe and the training engine say to each other.

A component is a frozen dataclass of settings. `start(run)` gives its runtime object, which does the work and
owns whatever state there is. Components know the model and the batch, never the trainer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from rosewood.recipe import Recipe

Batch = Mapping[str, Any]


class Output(NamedTuple):
    """One pass of the model over a batch: the task loss (a batch mean) and the logits `(batch, ..., classes)`."""

    loss: Tensor
    logits: Tensor


Call = Callable[[Batch], Output]


class Term(NamedTuple):
    """A named part of the loss. Weight 0 means read only: its gradient is looked at but never moves a weight."""

    name: str
    value: Tensor
    weight: float
    scaled: bool = True  # whether the fp16 loss scaler applies to the backward that reads this term alone


class Pass(NamedTuple):
    """The terms of one backward, and the outputs of the passes over the clean batch, which differ by dropout only."""

    terms: list[Term]
    clean: list[Output]


class Progress(NamedTuple):
    """Where training stands: optimiser steps done, and planned, within the current stage."""

    step: int
    total_steps: int


@dataclass(frozen=True)
class Run:
    """What a component may know when it starts."""

    model: nn.Module
    total_steps: int

    def trainable(self) -> dict[str, nn.Parameter]:
        return {name: p for name, p in self.model.named_parameters() if p.requires_grad}


class Component:
    """Settings of one part of a recipe; registered under the name of the file it stands in."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    @property
    def name(self) -> str:
        return type(self).__module__.rsplit(".", 1)[-1]

    def settings(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]

    def problems(self, recipe: Recipe) -> list[str]:
        """Sentences that say why this component makes no sense in this recipe; none if it does."""
        return []

    def problems_with(self, model: nn.Module) -> list[str]:
        """Sentences that say why this component cannot work on this model; none if it can."""
        return []


class Objective(Component):
    """What is minimised."""

    def run(self, call: Call, batch: Batch) -> Iterator[Pass]:
        """Run the model and yield the terms of each backward; gradients exist when the iterator is asked for more."""
        raise NotImplementedError


class Perturbation(Component):
    """How the input, or the weights, are disturbed."""


class Anchor(Component):
    """What ties the model to its pre-trained self."""


class Masks(NamedTuple):
    """Multipliers of named parameters: one number each, `(len(names),)`, or one tensor of its shape each."""

    names: list[str]
    values: Tensor | list[Tensor]


@dataclass(frozen=True)
class Readings:
    """What a selection may look at when the optimiser is about to step.

    `gradients[term][parameter]` is the gradient of that term as it is stored; `factors[term]` turns it into the
    gradient as clipping leaves it, so that no gradient is copied only to be scaled.
    """

    gradients: Mapping[str, Mapping[str, Tensor]]
    factors: Mapping[str, Tensor]
    clip: Tensor
    momentum: Mapping[str, Tensor]
    beta1: float
    at: Progress

    def factor(self, term: str, clipped: bool) -> Tensor:
        return self.factors[term] if clipped else self.factors[term] / self.clip

    def norms(self, term: str, names: Sequence[str], clipped: bool = True) -> Tensor:
        """Frobenius norms of one term's gradients, `(len(names),)`."""
        gradients = self.gradients[term]
        return stacked_norms([gradients[name] for name in names]) * self.factor(term, clipped)

    def magnitudes(self, term: str, names: Sequence[str], clipped: bool = True) -> Tensor:
        """Absolute values of one term's gradients, one flat tensor over all elements."""
        gradients = self.gradients[term]
        return flat_magnitudes([gradients[name] for name in names]) * self.factor(term, clipped)


def stacked_norms(tensors: list[Tensor]) -> Tensor:
    """The Frobenius norm of each tensor, `(len(tensors),)`, without a Python loop over them."""
    return torch.stack(torch._foreach_norm(tensors))


def flat_magnitudes(tensors: list[Tensor]) -> Tensor:
    """The absolute values of all elements, in one flat tensor."""
    return torch.cat([tensor.flatten() for tensor in tensors]).abs_()


class Selector:
    """The runtime of a selection; this one lets every parameter move."""

    def probe(self, call: Call, batch: Batch, result: Pass, at: Progress) -> list[Term]:
        """Read-only terms that the objective does not yield by itself."""
        return []

    def reads(self, terms: Sequence[Term], at: Progress) -> dict[str, list[str]]:
        """Which terms' gradients are wanted on their own, and for which parameters."""
        return {}

    def masks(self, readings: Readings) -> Masks | None:
        """The multipliers of this optimiser step; None means that everything moves."""
        return None

    def log(self) -> dict[str, Tensor]:
        """What the last `masks` saw, for the history; tensors, so that nothing waits for the device."""
        return {}


class Selection(Component):
    """Which parameters may move in a step."""

    # freeze: a masked parameter neither moves nor decays and keeps its momentum;
    # zero: only its gradient is masked, so momentum and decay still act.
    masked: ClassVar[Literal["freeze", "zero"]] = "zero"

    def start(self, run: Run) -> Selector:
        return Selector()
