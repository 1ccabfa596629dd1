"""Backward passes: one for each term that a selection reads on its own, one for all the others together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from rosewood.protocol import Term
from rosewood.tensors.shards import average_, completed, gradients, stacked_norms

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
        scale: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self._parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self._backward = backward
        self._scale = scale or (lambda loss: loss)
        self.clear()

    def clear(self) -> None:
        """Forget the last optimiser step; `parameter.grad` is the trainer's to clear."""
        self._buffers: dict[str, dict[str, Tensor]] = {}
        self._weights: dict[str, float] = {}
        self._scaled: dict[str, bool] = {}
        self._same_as_total: dict[str, float] = {}

    def add(
        self,
        terms: Sequence[Term],
        reads: Mapping[str, list[str]],
        micro_batches: float,
        leaves: Sequence[Tensor] = (),
        complete: bool = True,
    ) -> Tensor:
        """Backward through some terms of one micro-batch; returns their weighted sum, detached.

        `micro_batches` is how many of this size make the step, not always a whole number. `complete` says that these
        are all weighted terms of the step. Gradients of `leaves` end in `leaf.grad`.
        """
        weighted = [term for term in terms if term.weight != 0]
        alone = weighted[0].name if complete and len(weighted) == 1 else None
        apart = [term for term in terms if term.name in reads and term.name != alone]
        together = [term for term in weighted if term.name == alone or term.name not in reads]
        if alone is not None and alone in reads:
            self._same_as_total[alone] = weighted[0].weight
        for i, term in enumerate(apart):
            more = bool(together) or i + 1 < len(apart)
            self._read(term, reads[term.name], micro_batches, leaves, retain_graph=more)
        if together:
            self._backward(_weighted_sum(together) / micro_batches)
        if not weighted:
            return terms[0].value.detach() * 0
        return _weighted_sum(weighted).detach() / micro_batches

    def _read(
        self, term: Term, names: list[str], micro_batches: float, leaves: Sequence[Tensor], retain_graph: bool
    ) -> None:
        chosen = names if term.weight == 0 else self._parameters
        wanted = {name: term.stand_ins.get(name, self._parameters[name]) for name in chosen}
        extra = leaves if term.weight != 0 else ()
        loss = term.value / micro_batches
        found = gradients(
            self._scale(loss) if term.scaled else loss,
            [*wanted.values(), *extra],
            [*self._parameters.values(), *leaves],
            retain_graph,
        )
        for leaf, gradient in zip(extra, found[len(wanted) :], strict=True):
            if gradient is not None:
                part = gradient * term.weight
                leaf.grad = part if leaf.grad is None else leaf.grad + part
        self._weights[term.name] = term.weight
        self._scaled[term.name] = term.scaled
        fresh = {name: g for name, g in zip(wanted, found[: len(wanted)], strict=True) if g is not None}
        _accumulate(self._buffers.setdefault(term.name, {}), fresh)

    def of(self, terms: Sequence[Term], retain_graph: bool) -> dict[str, Tensor]:
        """The weights' gradients of read-only terms, kept out of everything that accumulates."""
        value = torch.stack([term.value for term in terms]).sum()
        parameters = list(self._parameters.values())
        found = gradients(self._scale(value), parameters, parameters, retain_graph)
        return self._mean({name: g for name, g in zip(self._parameters, found, strict=True) if g is not None})

    def _mean(self, gradients: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Their means over all processes, in place."""
        found = completed(gradients, self._parameters)
        average_(list(found.values()))
        return found

    def _means(self) -> dict[str, dict[str, Tensor]]:
        return {term: self._mean(buffer) for term, buffer in self._buffers.items()}

    @contextmanager
    def isolated(self, pull_back: Callable[[Mapping[str, Tensor]], None] | None = None) -> Iterator[dict[str, Tensor]]:
        """Keep the gradients of what happens inside apart from those before, until the end.

        `pull_back` changes them in place before they are merged. Without it, the mapping that is handed out holds, once
        the block is left, the gradients of its total over all processes.
        """
        before = self._found()
        buffers, self._buffers = self._buffers, {}
        for parameter in self._parameters.values():
            parameter.grad = None
        total: dict[str, Tensor] = {}
        yield total
        fresh = self._found()
        if pull_back is None:
            # What is averaged here stays as it is when the whole step is averaged.
            fresh, self._buffers = self._mean(fresh), self._means()
        else:
            for group in (fresh, *self._buffers.values()):
                pull_back(group)
        total.update(fresh)
        for term, buffer in self._buffers.items():
            if self._weights[term] != 0:
                part = dict(zip(buffer, torch._foreach_mul(list(buffer.values()), self._weights[term]), strict=True))
                total.update(_added(total, part))
        for term, buffer in self._buffers.items():
            _accumulate(buffers.setdefault(term, {}), buffer)
        self._buffers = buffers
        _accumulate(before, fresh)
        for name, gradient in before.items():
            self._parameters[name].grad = gradient

    def finish(self) -> None:
        """Once an optimiser step, after the last micro-batch: average over all processes, then add the weighted terms
        that were read on their own."""
        for name, gradient in self._mean(self._found()).items():
            self._parameters[name].grad = gradient
        self._buffers = self._means()
        for term, weight in self._weights.items():
            if weight == 0:
                continue
            buffer = self._buffers[term]
            torch._foreach_add_([self._total(name) for name in buffer], list(buffer.values()), alpha=weight)

    def _found(self) -> dict[str, Tensor]:
        return {name: p.grad for name, p in self._parameters.items() if p.grad is not None}

    def _total(self, name: str) -> Tensor:
        parameter = self._parameters[name]
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        return parameter.grad

    def readings(self) -> dict[str, dict[str, Tensor]]:
        """term -> parameter -> gradient as stored; `total` is what the optimiser will see."""
        total = self._found()
        return {TOTAL: total} | dict.fromkeys(self._same_as_total, total) | self._buffers

    def read_only_norms(self) -> dict[str, Tensor]:
        """The norm of each stored gradient that is not in the total."""
        buffers = {term: list(self._buffers[term].values()) for term, weight in self._weights.items() if weight == 0}
        return {term: stacked_norms(buffer).norm() for term, buffer in buffers.items() if buffer}

    def factors(self, clip: Tensor, loss_scale: float) -> dict[str, Tensor]:
        """What turns each stored gradient into that of the unscaled, clipped term."""
        one = torch.ones_like(clip)
        same = {term: one / weight for term, weight in self._same_as_total.items()}
        own = {term: clip / (loss_scale if self._scaled[term] else 1.0) for term in self._buffers}
        return {TOTAL: one} | same | own


def _accumulate(into: dict[str, Tensor], fresh: Mapping[str, Tensor]) -> None:
    """Add gradients by name, in place where there is something to add to."""
    known = [name for name in fresh if name in into]
    if known:
        torch._foreach_add_([into[name] for name in known], [fresh[name] for name in known])
    into |= {name: gradient for name, gradient in fresh.items() if name not in into}


def _added(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Sums by name, in new tensors."""
    both = [name for name in other if name in one]
    sums = torch._foreach_add([one[name] for name in both], [other[name] for name in both]) if both else []
    return {**other, **dict(zip(both, sums, strict=True))}


def _weighted_sum(terms: Sequence[Term]) -> Tensor:
    total = terms[0].value if terms[0].weight == 1 else terms[0].value * terms[0].weight
    for term in terms[1:]:
        total = total + (term.value if term.weight == 1 else term.value * term.weight)
    return total
