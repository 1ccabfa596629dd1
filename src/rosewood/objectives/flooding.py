"""The task's own loss, which is not to sink below a level."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from rosewood.objectives.cross_entropy import CrossEntropy
from rosewood.protocol import Batch, Call, Minimiser, Passes, Perturber, Progress, Run
from rosewood.tensors.shards import average_, stacked_norms

if TYPE_CHECKING:
    from rosewood.recipe import Stage

UNKNOWN = float("nan")
"""The level before it is found."""


@dataclass(frozen=True)
class Flooding(CrossEntropy):
    """Cross-entropy that climbs again wherever it is below `level` (Ishida et al., ICML 2020).

    L = |CE(f(x), y) - level| + level, of each batch: below the level the gradient has the other sign. Under gradient
    accumulation, and over several processes, that is decided for each micro-batch.

    `level: accordance` finds the level while training goes on, by the criterion of Flooding-X (Liu et al., ACL 2022):
    a step on one batch lowers the loss of another to first order if their gradients g agree. While the mean of
    cos(g_t, g_t-1) over the batches of an epoch is positive, training is plain. After the first epoch in which it is
    not, the level is the mean loss of that epoch. The gradient of the last batch is kept until then.
    """

    level: Annotated[float, Field(ge=0)] | Literal["accordance"] = 0.1

    def run(self, call: Call, batch: Batch, perturb: Perturber | None, at: Progress) -> Passes:
        assert not isinstance(self.level, str), "Accordance finds the level"
        return self.flooded(call, batch, perturb, at, self.level)

    def flooded(self, call: Call, batch: Batch, perturb: Perturber | None, at: Progress, level: float) -> Passes:
        for result in super().run(call, batch, perturb, at):
            term = result.terms[0]
            yield result._replace(terms=[term._replace(value=(term.value - level).abs() + level)])

    def plain(self, call: Call, batch: Batch, perturb: Perturber | None, at: Progress) -> Passes:
        return super().run(call, batch, perturb, at)

    def start(self, run: Run) -> Minimiser:
        return Accordance(self) if self.level == "accordance" else Minimiser(self)

    def asks_back(self, stage: Stage) -> bool:
        return self.level == "accordance"

    def memory(self) -> str:
        return "gradient of the last batch" if self.level == "accordance" else ""

    def explain(self, stage: Stage) -> list[str]:
        plain = super().explain(stage)[0].removeprefix("ce = ")
        if self.level != "accordance":
            return [f"ce = |{plain} - {self.level:g}| + {self.level:g}"]
        return [
            f"ce = {plain}, until the mean of cos(g_t, g_t-1) over an epoch is 0 or less, g_t the gradient of batch t",
            f"then ce = |{plain} - b| + b, b the mean of ce over that epoch",
        ]


class Accordance(Minimiser):
    """Measures how far the gradients of successive batches agree, and floods once they do not."""

    def __init__(self, settings: Flooding) -> None:
        super().__init__(settings)
        self.settings: Flooding = settings
        self._level, self._epoch = UNKNOWN, 0
        self._sums = torch.zeros(3, dtype=torch.float64)  # of the cosines, of the losses, of the batches
        self._last: dict[str, Tensor] = {}

    def run(self, call: Call, batch: Batch, perturb: Perturber | None, at: Progress) -> Passes:
        if at.epoch > self._epoch:
            self._end_epoch(at.epoch)
        if self._level == self._level:
            yield from self.settings.flooded(call, batch, perturb, at, self._level)
            return
        for result in self.settings.plain(call, batch, perturb, at):
            answer = yield result._replace(isolated=True)
            self._measure(answer.weights, result.terms[0].value.detach())

    def _measure(self, gradients: Mapping[str, Tensor], loss: Tensor) -> None:
        length = torch.linalg.vector_norm(stacked_norms(list(gradients.values())))
        # A copy: the gradients themselves are clipped, and emptied, after this.
        unit = dict(zip(gradients, torch._foreach_div(list(gradients.values()), length), strict=True))
        found = torch.stack([torch.zeros_like(loss), loss, torch.ones_like(loss)])
        if self._last.keys() == unit.keys():
            both = list(torch._foreach_add(list(unit.values()), [self._last[name] for name in unit]))
            # |u + v|^2 = 2 + 2 cos(u, v)
            found[0] = (stacked_norms(both).square().sum() - 2) / 2
        self._last = unit
        self._sums = self._sums.to(loss.device) + torch.where(found.isfinite().all(), found, 0.0)

    def _end_epoch(self, epoch: int) -> None:
        average_([self._sums])
        cosines, losses, batches = self._sums.tolist()
        if batches and cosines <= 0:
            self._level, self._last = losses / batches, {}
        self._epoch, self._sums = epoch, torch.zeros_like(self._sums)

    def state_dict(self) -> dict[str, Tensor]:
        numbers = torch.tensor([self._level, self._epoch], dtype=torch.float64)
        return {"numbers": numbers, "sums": self._sums} | {f"last.{name}": g for name, g in self._last.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        level, epoch = state["numbers"].tolist()
        self._level, self._epoch, self._sums = level, int(epoch), state["sums"]
        self._last = {name.removeprefix("last."): g for name, g in state.items() if name.startswith("last.")}
