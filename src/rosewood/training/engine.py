"""Runs the parts of a recipe in the order in which a training step needs them. Knows nothing of the Trainer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from rosewood.dynamics.record import Watch
from rosewood.protocol import (
    Batch,
    Call,
    Feedback,
    Masks,
    Minimiser,
    Pass,
    Perturber,
    Position,
    Progress,
    Readings,
    Run,
    Selector,
    Stateful,
    Term,
    Tether,
)
from rosewood.recipe import Recipe, Stage
from rosewood.tensors.shards import average_, divide, parts
from rosewood.training.gradients import TOTAL, Gradients
from rosewood.training.masked_adamw import MaskedAdamW


class StageRun(NamedTuple):
    """A stage under way: its parts, their runtime objects, and the optimiser steps it spans."""

    stage: Stage
    number: int
    first_step: int
    steps: int
    minimiser: Minimiser
    perturber: Perturber | None
    selector: Selector
    tethers: list[Tether]

    def stateful(self) -> dict[str, Stateful]:
        parts: dict[str, Stateful] = {"objective": self.minimiser, "selection": self.selector}
        if self.perturber is not None:
            parts["perturbation"] = self.perturber
        return parts | {f"anchor{i}": tether for i, tether in enumerate(self.tethers)}


class Engine:
    """One training run of a recipe: feeds it micro-batches, then says what the optimiser may do."""

    def __init__(
        self,
        recipe: Recipe,
        model: nn.Module,
        total_steps: int,
        seed: int,
        pretrained: Mapping[str, Tensor],
        backward: Callable[[Tensor], None],
        scale: Callable[[Tensor], Tensor] | None = None,
        folder: Path | None = None,
        watches: Sequence[Watch] = (),
        frozen: Mapping[str, Tensor] | None = None,
        start: Mapping[str, Tensor] | None = None,
    ) -> None:
        self._model = model
        self._seed = seed
        self._pretrained, self._frozen = pretrained, frozen or {}
        self._backward, self._scale = backward, scale
        self._folder = folder
        self._plan: list[tuple[Stage, int, int]] = []
        done, share = 0, 0.0
        for stage in recipe.all_stages():
            share += stage.share
            end = round(total_steps * share)
            self._plan.append((stage, done, end - done))
            done = end
        self._current: StageRun | None = None
        self._loaded: dict[str, Tensor] | None = None
        self._sums: dict[str, Tensor] = {}
        self._watches = watches
        self._watching: list[Watch] = []  # those that record the current step
        for watch in watches:
            watch.start(model, total_steps, seed, pretrained if start is None else start)

    def stage_lengths(self) -> list[int]:
        return [steps for _, _, steps in self._plan]

    def enter(self, step: int, call: Call, data: Callable[[], Iterable[Sequence[Batch]]]) -> bool:
        """Make the stage of this step the current one; True if it begins here, after another stage."""
        index = max(i for i, (_, first, _) in enumerate(self._plan) if first <= step)
        if self._current is not None and self._current.number == index:
            return False
        self.finish()
        divide(self._model)
        run = self._start(index)
        run.selector.enter()
        self._current = run
        self._gradients = Gradients(self._model, self._backward, self._scale)
        begins = step == run.first_step
        if self._loaded is not None and not begins:  # at a border the checkpoint is the last stage's
            self._distribute(self._loaded)
        elif run.stage.selection.prepares:
            run.selector.prepare(call, data())
        self._loaded = None
        return index > 0 and begins

    def _start(self, index: int) -> StageRun:
        stage, first, steps = self._plan[index]
        known = (self._pretrained, self._scale, self._folder, self._frozen)
        run = Run(self._model, steps, stage, self._seed, *known)
        perturber = None if stage.perturbation is None else stage.perturbation.start(run)
        tethers = [anchor.start(run) for anchor in stage.anchors]
        selector = stage.selection.start(run)
        return StageRun(stage, index, first, steps, stage.objective.start(run), perturber, selector, tethers)

    def finish(self) -> None:
        """The stage is over: give the model back as it came, but for its weights."""
        if self._current is not None:
            self._current.selector.leave()
            for tether in self._current.tethers:
                tether.leave()

    @property
    def under_way(self) -> bool:
        """Whether a stage has begun."""
        return self._current is not None

    @property
    def _run(self) -> StageRun:
        assert self._current is not None, "enter comes first"
        return self._current

    def _progress(self, moment: Position) -> Progress:
        run = self._run
        return Progress(moment.step - run.first_step, run.steps, moment.epoch, moment.micro_batch, moment.examples)

    def micro_batch(self, call: Call, batch: Batch, moment: Position) -> Tensor:
        """Forward and backward of one micro-batch; returns its share of the loss, detached."""
        run, at = self._run, self._progress(moment)
        if moment.micro_batch == 0:
            # Not after the optimiser's step: the loss scaler may have skipped that.
            self._gradients.clear()
            self._sums = {}
            self._watching = [watch for watch in self._watches if watch.is_due(moment.step + 1)]
        last = moment.micro_batch + 1 == moment.micro_batches
        if run.perturber is not None:
            run.perturber.begin(at)
        for tether in run.tethers:
            call = tether.watching(call)
        changing = [t for t, anchor in zip(run.tethers, run.stage.anchors, strict=True) if anchor.changes_weights]
        with ExitStack() as stack:
            for tether in changing:
                stack.enter_context(tether.around(at))
                stack.enter_context(self._gradients.isolated(tether.pull_back))
            loss = self._passes(call, batch, at, moment)
        if last:
            loss = loss + self._weight_terms(at)
            self._gradients.finish()
            average_(list(self._sums.values()))
        return loss

    def _passes(self, call: Call, batch: Batch, at: Progress, moment: Position) -> Tensor:
        run = self._run
        loss: Tensor | None = None
        generator = run.minimiser.run(call, batch, run.perturber, at)
        try:
            result = next(generator)
            for watch in self._watching:
                watch.passed(call, batch, result.clean, moment)
            while True:
                companions = self._companions(call, batch, result, at)
                part, weights = self._backward_through(result, companions, at, moment.parts)
                loss = part if loss is None else loss + part
                leaves = [leaf.grad for leaf in result.leaves if leaf.grad is not None]
                result = generator.send(Feedback(leaves, weights))
        except StopIteration:
            assert loss is not None, "an objective yields at least one pass"
            return loss

    def _companions(self, call: Call, batch: Batch, result: Pass, at: Progress) -> list[Term]:
        """What anchors and selection add to a pass over clean input."""
        if not result.clean:
            return []
        anchored = [term for tether in self._run.tethers for term in tether.terms(call, batch, result, at)]
        return anchored + self._run.selector.probe(call, batch, result, at)

    def _backward_through(
        self, result: Pass, companions: list[Term], at: Progress, micro_batches: float
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        terms = result.terms + companions
        complete = result.complete and not any(anchor.weight_terms for anchor in self._run.stage.anchors)
        reads = self._run.selector.reads(terms, at)
        for term in terms:
            self._sums[term.name] = self._sums.get(term.name, 0) + term.value.detach() / micro_batches
        if not result.isolated:
            return self._gradients.add(terms, reads, micro_batches, result.leaves, complete), {}
        if not any(term.weight for term in result.terms):
            # Only a direction is wanted, as by SAM: what the companions add is not part of it.
            weights = self._gradients.of(result.terms, retain_graph=bool(companions))
            loss = self._gradients.add(companions, reads, micro_batches, complete=False) if companions else None
            return result.terms[0].value.detach() * 0 if loss is None else loss, weights
        with self._gradients.isolated() as weights:
            loss = self._gradients.add(terms, reads, micro_batches, result.leaves, complete)
        return loss, weights

    def _weight_terms(self, at: Progress) -> Tensor | int:
        terms = [term for tether in self._run.tethers for term in tether.weight_terms(at)]
        if not terms:
            return 0
        self._sums |= {term.name: term.value.detach() for term in terms}
        return self._gradients.add(terms, {}, 1, complete=False)

    def terms(self) -> dict[str, Tensor]:
        """The value of each term in this optimiser step."""
        return self._sums

    def read_only_norms(self) -> dict[str, Tensor]:
        """The size of each gradient that is read but moves no weight, and so is not in the total."""
        return self._gradients.read_only_norms()

    def before_optimizer_step(
        self, optimizer: torch.optim.Optimizer, moment: Position, clip: Tensor, loss_scale: float
    ) -> dict[str, Any]:
        """Select what may move and tell the optimiser; returns what the history should know."""
        run = self._run
        parameters = {name: p for name, p in self._model.named_parameters() if p.grad is not None}
        state = optimizer.state
        readings = Readings(
            gradients=self._gradients.readings(),
            factors=self._gradients.factors(clip, loss_scale),
            clip=clip,
            momentum={name: state[p]["exp_avg"] for name, p in parameters.items() if "exp_avg" in state.get(p, {})},
            beta1=optimizer.param_groups[0].get("betas", (0.9,))[0],
            at=self._progress(moment),
        )
        masks = run.selector.masks(readings)
        for watch in self._watching:
            watch.selected(moment.step + 1, masks, run.selector.risks())
        if run.stage.selection.masked == "freeze":
            assert isinstance(optimizer, MaskedAdamW)
            optimizer.mask(masks, parameters)
        else:
            if isinstance(optimizer, MaskedAdamW):
                optimizer.mask(None)
            if masks is not None:
                _multiply(readings.gradients[TOTAL], masks)
        return {"terms": self._sums} | run.selector.log()

    def after_optimizer_step(self, moment: Position) -> None:
        for tether in self._run.tethers:
            tether.after_step(self._progress(moment))
        for watch in self._watching:
            watch.stepped(moment.step + 1)

    def state_dict(self) -> dict[str, Tensor]:
        """What a resumed run needs beside weights, optimiser and random state."""
        if self._current is None:
            return {}
        parts = self._current.stateful().items()
        return {f"{part}.{key}": value for part, owner in parts for key, value in owner.state_dict().items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Kept until the stage it belongs to is entered."""
        self._loaded = state

    def _distribute(self, state: dict[str, Tensor]) -> None:
        for part, owner in self._run.stateful().items():
            prefix = f"{part}."
            owner.load_state_dict({k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)})


def _multiply(gradients: Mapping[str, Tensor], masks: Masks) -> None:
    values = list(masks.values.unbind()) if isinstance(masks.values, Tensor) else masks.values
    present = [(gradients[name], value) for name, value in zip(masks.names, values, strict=True) if name in gradients]
    if present:
        torch._foreach_mul_(parts(gradient for gradient, _ in present), [value for _, value in present])
