"""Inconsistency: how often two dropout passes predict different classes (ROSE, Table 4)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

import torch
from pydantic import model_validator
from torch import Tensor, nn

from rosewood.dynamics.record import Seen, Watch, read_seen
from rosewood.models.modes import has_dropout
from rosewood.protocol import Batch, Call, Output
from rosewood.recipe import Recipe
from rosewood.results.files import Count
from rosewood.results.grid import Grid
from rosewood.tensors.divergences import divergence_problems
from rosewood.tensors.draws import forked, seed_from
from rosewood.tensors.shards import rank, sum_

if TYPE_CHECKING:
    from rosewood.protocol import Position


class SeenInconsistency(Seen):
    """How many of the predictions that a step compared had another class in the other pass."""

    watch = "inconsistency"

    compared: Count
    differing: Count

    @model_validator(mode="after")
    def _no_more_than_all(self) -> Self:
        if self.differing > self.compared:
            raise ValueError(f"{self.differing} of {self.compared} predictions cannot differ")
        return self


class InconsistencyWatch(Watch):
    """Counts the predictions of a training batch whose class changes from one dropout pass to another (ROSE, Table 4).

    Where the objective makes two such passes anyway (R-Drop, ROSE-First and -Ensemble as published), theirs are
    compared. Otherwise this makes the one that is missing, or, where no pass sees the clean input (FreeLB), both:
    forwards without a gradient, whose dropout comes from random numbers of their own.
    """

    name, seen = SeenInconsistency.watch, SeenInconsistency

    def problems(self, recipe: Recipe, model: nn.Module) -> list[str]:
        switched_on = any(getattr(stage.selection, "dropout", None) for stage in recipe.all_stages())
        if not has_dropout(model) and not switched_on:
            return [
                f"watch inconsistency compares two dropout passes, and {type(model).__name__} has no dropout: leave it "
                "out, or give the model some (hidden_dropout_prob of its config)"
            ]
        return divergence_problems(model, "watch inconsistency")

    def passed(self, call: Call, batch: Batch, clean: Sequence[Output], moment: Position) -> None:
        if moment.micro_batch == 0:
            self._counts = torch.zeros(2, dtype=torch.int64, device=next(self._model.parameters()).device)
        self._counts += self._compare(call, batch, clean, moment)
        if moment.micro_batch + 1 == moment.micro_batches:
            sum_(self._counts)
            compared, differing = self._counts.tolist()
            self.records.record(moment.step + 1, {"compared": compared, "differing": differing})

    @torch.no_grad()
    def _compare(self, call: Call, batch: Batch, clean: Sequence[Output], moment: Position) -> Tensor:
        with self._own_draws(moment):
            outputs = [*clean[:2], *(call(batch) for _ in range(2 - len(clean)))]
        one, other = (output.predictions().argmax(-1) for output in outputs)
        differs = (one != other).flatten(1).any(1) if one.dim() > 1 else one != other
        return torch.stack([differs.new_tensor(len(differs), dtype=torch.int64), differs.sum()])

    @contextmanager
    def _own_draws(self, moment: Position) -> Iterator[None]:
        """Random numbers that depend on the place in training alone; those of training stay as they are."""
        device = next(self._model.parameters()).device
        seed = seed_from(self._seed, self.name, moment.step, moment.micro_batch, rank())
        with forked(device):
            torch.manual_seed(seed >> 1)
            yield


MILESTONES = (200, 600, 2000, 4000)  # of the paper's table


class Inconsistency(NamedTuple):
    """The share of predictions that differed, over all recorded steps up to each."""

    run: str
    steps: list[int]
    shares: list[float]

    def at(self, milestones: Sequence[int] = MILESTONES) -> dict[int, float]:
        """The share over the first N steps, for each N that the run reached, and over all of them."""
        last = self.steps[-1]
        wanted = [*sorted({each for each in milestones if each < last}), last]
        reached = {each: [step for step in self.steps if step <= each] for each in wanted}
        return {each: self.shares[len(steps) - 1] for each, steps in reached.items() if steps}


def read_inconsistency(run: str | Path) -> Inconsistency:
    """The inconsistency that a run recorded; with --watch-every k it is that of every k-th step's batch."""
    records = read_seen(run, SeenInconsistency)
    compared = accumulate(seen.compared for seen in records)
    differing = accumulate(seen.differing for seen in records)
    shares = [some / max(all_, 1) for some, all_ in zip(differing, compared, strict=True)]
    return Inconsistency(Path(run).name, [seen.step for seen in records], shares)


def inconsistency_table(found: Sequence[Inconsistency], milestones: Sequence[int] = MILESTONES) -> Grid:
    """The first N steps of each run, for some N, and all of them."""
    tables = [each.at(milestones) for each in found]
    steps = sorted({step for table in tables for step in table})
    rows = [
        [each.run, *(f"{table[step]:.2%}" if step in table else "" for step in steps)]
        for each, table in zip(found, tables, strict=True)
    ]
    caption = "Predictions whose class differs between two dropout passes, over the first N steps."
    return Grid("Dropout inconsistency", ["run", *map(str, steps)], rows, caption)
