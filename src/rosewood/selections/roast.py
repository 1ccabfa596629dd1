"""RoAST: update the weights that matter for the task, the more surely the more they matter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from rosewood.errors import RecipeError
from rosewood.models.parameters import SquaredGradients, candidate_names, present_masks
from rosewood.protocol import Batch, Call, Masks, Readings, Run, Selection, Selector
from rosewood.tensors.shards import all_elements, flat_like, keep_own, parts, room

if TYPE_CHECKING:
    from rosewood.recipe import Stage

# Small enough that what is computed piece by piece does not count beside the importances themselves.
CHUNK = 1 << 18


@dataclass(frozen=True)
class Roast(Selection):
    """The selective training of RoAST (Kim et al., Findings of EMNLP 2023).

    Importance of a weight: the sum of its squared gradients over an epoch. Before the first epoch the gradients are
    those of the task's loss in one additional pass over the training data; afterwards those that the epoch just
    finished had before masking. With r in [0, 1] the rank among all weights of the repeated blocks, a weight is kept
    with probability p = sigmoid(2 beta (r - alpha)), and its gradient divided by p. Masks are drawn once per epoch.
    Momentum and weight decay are not masked.

    As in the official code, gradients are those of a batch mean; a batch is that of an optimiser step, over all
    accumulated batches. Clipping is undone first.

    Deviations:
    - The first batch counts; in the official code it is lost to the initialisation.
    - Ties rank in the order of the weights, so that equal runs are equal.
    - p can be as small as 1.5e-8, and then a kept weight's gradient grows by 6.6e7. Adam forgets a constant factor,
      but not at once when masks change: `scale_cap` limits it, `scale=False` leaves it out (paper: scaled, no cap).
    - Candidates are found by structure, see `rosewood.models.parameters`, biases included; `parameters` replaces them.

    Ablations: `threshold="hard"` (beta to infinity) keeps exactly the weights with r >= alpha, none of them scaled;
    with alpha 0 these are all. `importance="random"` ranks at random, drawn again every epoch, so that in time each
    weight has its turn; `importance="random_once"` keeps the random order of the first epoch.
    """

    prepares = True

    alpha: Annotated[float, Field(ge=0, lt=1)] = 0.9
    beta: Annotated[float, Field(gt=0)] = 10.0
    threshold: Literal["soft", "hard"] = "soft"
    importance: Literal["gradient", "random", "random_once"] = "gradient"
    scale: bool = True
    scale_cap: Annotated[float, Field(ge=1)] | None = None
    parameters: str | None = None

    def problems(self, stage: Stage) -> list[str]:
        if self.scale_cap is None or (self.scale and self.threshold == "soft"):
            return []
        setting = "scale=false" if not self.scale else "threshold=hard"
        return [f"selection.scale_cap limits a scale that selection.{setting} does not have: leave one of them out"]

    def problems_with(self, model: nn.Module) -> list[str]:
        try:
            candidate_names(model, self.parameters, biases=True)
        except RecipeError as error:
            return [str(error)]
        return []

    def memory(self) -> str:
        return "importances, masks"

    def explain(self, stage: Stage) -> list[str]:
        rank = {
            "gradient": "r = rank in [0, 1] of the last epoch's sum of (grad total)^2; in the first epoch, (grad CE)^2",
            "random": "r = a random order of the weights, as a rank in [0, 1], drawn again every epoch",
            "random_once": "r = a random order of the weights, as a rank in [0, 1], the same in all epochs",
        }[self.importance]
        if self.threshold == "hard":
            return [rank, f"M = 1 where r >= {self.alpha:g}, else 0; g' = M g"]
        cap = "" if self.scale_cap is None else f", at most {self.scale_cap:g}"
        scaled = f"M ~ Bernoulli(p) / p{cap}" if self.scale else "M ~ Bernoulli(p)"
        return [rank, f"p = sigmoid({2 * self.beta:g} (r - {self.alpha:g}))", f"{scaled}, drawn every epoch; g' = M g"]

    def keep_probability(self, rank: Tensor) -> Tensor:
        """p for ranks in [0, 1]."""
        if self.threshold == "hard":
            return (rank >= self.alpha).to(rank.dtype)
        return torch.sigmoid(2 * self.beta * (rank - self.alpha))

    def kept_factor(self, probability: Tensor) -> Tensor:
        """What the gradient of a kept weight is multiplied by."""
        if not self.scale or self.threshold == "hard":
            return torch.ones_like(probability)
        scale = 1 / (probability + 1e-12)
        return scale if self.scale_cap is None else scale.clamp(max=self.scale_cap)

    def start(self, run: Run) -> RoastSelector:
        return RoastSelector(self, run)


def ascending(values: Tensor) -> Tensor:
    """The places of the values from the lowest to the highest, ties in their order, `(len(values),)`."""
    if values.device.type == "cpu":
        # torch's own stable sort needs twice the memory.
        return torch.from_numpy(np.argsort(values.numpy(), kind="stable"))
    return values.argsort(stable=True)


class RoastSelector(Selector):
    """Adds up importances while an epoch lasts, and draws new masks from them when the next begins."""

    def __init__(self, settings: Roast, run: Run) -> None:
        self.settings = settings
        self._run = run
        self._names = candidate_names(run.model, settings.parameters, biases=True)
        trainable = run.trainable()
        self._candidates = [trainable[name] for name in self._names]
        self._importance = SquaredGradients(self._candidates, run.loss_scale)
        self._mask = flat_like(parts(self._candidates))
        self._epoch = -1
        self._shares = torch.zeros(2, dtype=torch.float64)

    def prepare(self, call: Call, steps: Iterable[Sequence[Batch]]) -> None:
        if self.settings.importance == "gradient":
            self._importance.add_pass(call, self._run.model, steps)

    def masks(self, readings: Readings) -> Masks:
        if readings.at.epoch != self._epoch:
            self._epoch = readings.at.epoch
            self._draw()
            self._importance.sums.whole.zero_()
        total = readings.gradients["total"]
        if self.settings.importance == "gradient":
            gradients = [total.get(name) for name in self._names]
            self._importance.add(gradients, readings.factor("total", clipped=False))
        return present_masks(self._names, self._mask.pieces, total)

    def _draw(self) -> None:
        mask, generator = room(self._mask, self._candidates), self._run.generator("roast", self._epoch)
        order = self._ranking(generator)
        n = len(order)
        kept = probable = torch.zeros((), dtype=torch.float64, device=mask.device)
        for start in range(0, n, CHUNK):
            places = order[start : start + CHUNK]
            positions = torch.arange(start, start + len(places), dtype=torch.float64, device=mask.device)
            probability = self.settings.keep_probability(positions / max(n - 1, 1))
            # In double precision: single precision cannot draw probabilities below 2^-24.
            drawn = torch.rand(len(places), dtype=torch.float64, device=mask.device, generator=generator)
            keep = drawn < probability
            mask.index_copy_(0, places, (keep * self.settings.kept_factor(probability)).to(mask.dtype))
            kept, probable = kept + keep.sum(), probable + probability.sum()
        self._shares = torch.stack([kept, probable]) / n
        if n == 1:  # it has no rank
            mask.fill_(1.0)
            self._shares.fill_(1.0)
        keep_own(self._mask, mask, self._candidates)

    def _ranking(self, generator: torch.Generator) -> Tensor:
        values = all_elements(self._importance.sums, self._candidates)
        if self.settings.importance == "gradient":
            return ascending(values)
        if self.settings.importance == "random_once":
            generator = self._run.generator("roast", "order")
        return torch.randperm(len(values), generator=generator, device=values.device)

    def log(self) -> dict[str, Tensor]:
        return {"kept_share": self._shares[0], "keep_probability": self._shares[1]}

    def state_dict(self) -> dict[str, Tensor]:
        return {
            "importance": all_elements(self._importance.sums, self._candidates),
            "mask": all_elements(self._mask, self._candidates),
            "epoch": torch.tensor(self._epoch),
            "shares": self._shares,
        }

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        keep_own(self._importance.sums, state["importance"], self._candidates)
        keep_own(self._mask, state["mask"], self._candidates)
        self._epoch = int(state["epoch"])
        self._shares = state["shares"]
