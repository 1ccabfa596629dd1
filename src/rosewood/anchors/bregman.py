"""SMART's proximal term: small steps in the space of predictions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from rosewood.models.parameters import LentWeights
from rosewood.protocol import Anchor, Batch, Call, Cost, Pass, Progress, Run, Term, Tether, Weight, weight_at
from rosewood.tensors.divergences import divergence_problems, symmetric_kl
from rosewood.tensors.shards import cut, parts, whole

if TYPE_CHECKING:
    from rosewood.recipe import Stage

Decay = Annotated[float, Field(ge=0, lt=1)]


@dataclass(frozen=True)
class Bregman(Anchor):
    """Holds predictions near those of a teacher, a moving average of the model's own weights.

    Adds `weight` (mu) times the mean symmetric KL between f(x; theta) and f(x; teacher) (SMART: Jiang et al., ACL
    2020, the proximal point method with momentum). After each step the teacher becomes
    beta teacher + (1 - beta) theta; beta is `early_decay` for the first `early_share` of the steps, then `late_decay`.

    Deviations: the official code (mt-dnn) has no such term. The paper does not say whether the teacher runs with
    dropout; by default it does not (`teacher_mode="eval"`), so that the target is its best guess.
    """

    weight: Weight = 1.0
    early_decay: Decay = 0.99
    late_decay: Decay = 0.999
    early_share: Annotated[float, Field(ge=0, le=1)] = 0.1
    teacher_mode: Literal["eval", "train"] = "eval"

    def problems_with(self, model: nn.Module) -> list[str]:
        return divergence_problems(model, "anchor bregman")

    def cost(self, stage: Stage) -> Cost:
        return Cost(forward=1)

    def memory(self) -> str:
        return "EMA teacher"

    def explain(self, stage: Stage) -> list[str]:
        decay = f"{self.early_decay:g} for the first {self.early_share:.0%} of the steps, then {self.late_decay:g}"
        return [
            f"loss += {self.weight:g} * bregman,  bregman = mean symKL(f(x; theta), f(x; teacher))",
            f"after each step: teacher = beta teacher + (1 - beta) theta,  beta = {decay}",
        ]

    def start(self, run: Run) -> BregmanTether:
        return BregmanTether(self, run)


class BregmanTether(Tether):
    """Owns the teacher's weights, which start as the model's and are part of every checkpoint.

    The model lends them its body: for the teacher's pass they take the place of its own weights.
    """

    def __init__(self, settings: Bregman, run: Run) -> None:
        self._settings = settings
        self._model = run.model
        self._student = run.trainable()
        self._teacher = LentWeights(run.model, list(self._student.values()))
        self._averages = {name: p.detach().clone() for name, p in self._student.items()}

    def terms(self, call: Call, batch: Batch, result: Pass, at: Progress) -> list[Term]:
        averages = list(self._averages.values())
        with torch.no_grad(), self._teacher.lent(averages, training=self._settings.teacher_mode == "train"):
            target = call(batch, model=self._model).predictions()
        return [
            Term("bregman", symmetric_kl(result.clean[0].predictions(), target), weight_at(self._settings.weight, at))
        ]

    def after_step(self, at: Progress) -> None:
        early = at.step < self._settings.early_share * at.total_steps
        decay = self._settings.early_decay if early else self._settings.late_decay
        with torch.no_grad():
            torch._foreach_lerp_(parts(self._averages.values()), parts(self._student.values()), 1 - decay)

    def state_dict(self) -> dict[str, Tensor]:
        return {name: whole(average) for name, average in self._averages.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        own = [cut(state[name], average) for name, average in self._averages.items()]
        torch._foreach_copy_(parts(self._averages.values()), own)
