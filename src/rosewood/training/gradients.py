"""Backward passes: one for each term that a selection reads on its own, one for all the others together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from rosewood.protocol import Term

TOTAL = "total"


class Gradients:
    """Accumulates the gradients of one optimiser step, term by term where that is asked for.

    The gradient of the total always ends in `parameter.grad`. A term that is read on its own gets its own backward
    and its own buffers, unless it is the only term with a weight: then `parameter.grad` already is its gradient.
    """

    def __init__(
        self,
        model: nn.Module,
        backward: Callable[[Tensor], None],
        scale: Callable[[Tensor], Tensor] = lambda loss: loss,
    ) -> None:
        self._parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self._backward = backward
        self._scale = scale
        self.clear()

    def clear(self) -> None:
        self._buffers: dict[str, dict[str, Tensor]] = {}
        self._weights: dict[str, float] = {}
        self._scaled: dict[str, bool] = {}
        self._same_as_total: dict[str, float] = {}

    def add(self, terms: Sequence[Term], reads: Mapping[str, list[str]], micro_batches: int) -> Tensor:
        """Backward through the terms of one micro-batch; returns the weighted total, detached."""
        weighted = [term for term in terms if term.weight != 0]
        alone = weighted[0].name if len(weighted) == 1 else None
        apart = [term for term in terms if term.name in reads and term.name != alone]
        if alone is not None and alone in reads:
            self._same_as_total[alone] = weighted[0].weight
        together = [term for term in weighted if term.name == alone or term.name not in reads]
        for i, term in enumerate(apart):
            more = bool(together) or i + 1 < len(apart)
            self._read(term, reads[term.name], micro_batches, retain_graph=more)
        if together:
            self._backward(_weighted_sum(together) / micro_batches)
        return _weighted_sum(weighted).detach() / micro_batches

    def _read(self, term: Term, names: list[str], micro_batches: int, retain_graph: bool) -> None:
        wanted = {name: self._parameters[name] for name in names} if term.weight == 0 else self._parameters
        loss = term.value / micro_batches
        found = torch.autograd.grad(
            self._scale(loss) if term.scaled else loss,
            list(wanted.values()),
            retain_graph=retain_graph,
            allow_unused=True,
        )
        fresh = {name: grad for name, grad in zip(wanted, found, strict=True) if grad is not None}
        self._weights[term.name] = term.weight
        self._scaled[term.name] = term.scaled
        buffer = self._buffers.setdefault(term.name, {})
        known = [name for name in fresh if name in buffer]
        if known:
            torch._foreach_add_([buffer[name] for name in known], [fresh[name] for name in known])
        buffer |= {name: grad for name, grad in fresh.items() if name not in buffer}

    def finish(self) -> None:
        """Once an optimiser step, after the last micro-batch: add the weighted terms that were read on their own."""
        for term, weight in self._weights.items():
            if weight == 0:
                continue
            buffer = self._buffers[term]
            torch._foreach_add_([self._total(name) for name in buffer], list(buffer.values()), alpha=weight)

    def _total(self, name: str) -> Tensor:
        parameter = self._parameters[name]
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        return parameter.grad

    def readings(self) -> dict[str, dict[str, Tensor]]:
        """term -> parameter -> gradient as stored; `total` is what the optimiser will see."""
        total = {name: p.grad for name, p in self._parameters.items() if p.grad is not None}
        return {TOTAL: total} | dict.fromkeys(self._same_as_total, total) | self._buffers

    def factors(self, clip: Tensor, loss_scale: float) -> dict[str, Tensor]:
        """What turns each stored gradient into that of the unscaled, clipped term."""
        one = torch.ones_like(clip)
        same = {term: one / weight for term, weight in self._same_as_total.items()}
        own = {term: clip / (loss_scale if self._scaled[term] else 1.0) for term in self._buffers}
        return {TOTAL: one} | same | own


def _weighted_sum(terms: Sequence[Term]) -> Tensor:
    total = terms[0].value if terms[0].weight == 1 else terms[0].value * terms[0].weight
    for term in terms[1:]:
        total = total + (term.value if term.weight == 1 else term.value * term.weight)
    return total
