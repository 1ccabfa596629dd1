"""Child-Tuning: update a sub-network, fixed by Fisher information or drawn again in every step."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from rosewood.errors import RecipeError
from rosewood.models.parameters import SquaredGradients, candidate_names, present_masks
from rosewood.protocol import Batch, Call, Masks, Readings, Run, Selection, Selector
from rosewood.tensors.draws import LEVELS, LOWEST, SixteenBits
from rosewood.tensors.shards import all_elements, flat_like, keep_own, parts
from rosewood.tensors.statistics import upper_threshold

if TYPE_CHECKING:
    from rosewood.recipe import Stage


@dataclass(frozen=True)
class ChildTuning(Selection):
    """Child-Tuning (Xu et al., EMNLP 2021): only the gradients of a child network reach the optimiser.

    D (task-driven): one pass over the training data before the first step gives every weight's Fisher information,
    the mean of squared batch gradients; the `keep_share` highest over all candidates are updated, the others never.
    F (task-free): in every step each weight is kept with probability `keep_share`, its gradient divided by it.
    Momentum and weight decay are not masked, so a weight outside the child of D still shrinks.

    As in the official code, the Fisher information of D is made of squared gradients of batch means, not of single
    examples, and each tensor's gradient is clipped to norm 1 before. A batch is that of an optimiser step.

    Deviations:
    - D's candidates are found by structure instead of by "layer" in the name, see `model.candidates`; biases are
      among them. F masks everything. `parameters`, a regular expression, replaces both.
    - F's probability has a resolution of 2^-16, because sixteen random bits decide over a weight: drawing them is
      most of what F costs. The gradient is divided by the probability that is really used.
    - Where more than 1 - `keep_share` of the weights never had a gradient, D's threshold is 0 and keeps everything,
      which the official code does silently; here it warns.
    """

    prepares = True

    variant: Literal["D", "F"] = "D"
    keep_share: Annotated[float, Field(gt=0, le=1)] = 0.3
    parameters: str | None = None

    def candidates(self, model: nn.Module) -> dict[str, nn.Parameter]:
        trainable = {name: p for name, p in model.named_parameters() if p.requires_grad}
        if self.variant == "F" and self.parameters is None:
            return trainable
        return {name: trainable[name] for name in candidate_names(model, self.parameters, biases=True)}

    def problems_with(self, model: nn.Module) -> list[str]:
        try:
            self.candidates(model)
        except RecipeError as error:
            return [str(error)]
        return []

    def memory(self) -> str:
        return "mask" if self.variant == "D" else "mask, random bits"

    def explain(self, stage: Stage) -> list[str]:
        if self.variant == "F":
            return [f"in every step M ~ Bernoulli({self.keep_share:g}) for each weight; g' = M g / {self.keep_share:g}"]
        return [
            "before training F = mean over batches of (grad CE)^2, each tensor's gradient clipped to norm 1",
            f"M = 1 where F is at least its quantile {1 - self.keep_share:g} over all candidates, else 0; g' = M g",
        ]

    def start(self, run: Run) -> Selector:
        return FisherChild(self, run) if self.variant == "D" else RandomChild(self, run)


class FisherChild(Selector):
    """The child of variant D: a mask made once, from the gradients at the pre-trained weights."""

    def __init__(self, settings: ChildTuning, run: Run) -> None:
        self._run = run
        self._share = settings.keep_share
        self._candidates = settings.candidates(run.model)
        # Not bool: multiplying a float by one is several times as slow.
        self._mask = flat_like(parts(self._candidates.values()))
        self._kept = torch.zeros(())

    def prepare(self, call: Call, steps: Iterable[Sequence[Batch]]) -> None:
        candidates = list(self._candidates.values())
        fisher = SquaredGradients(candidates, self._run.loss_scale)
        fisher.add_pass(call, self._run.model, steps, clip_each_norm=1.0)
        information = all_elements(fisher.sums, candidates)
        threshold = upper_threshold(information, self._share)
        if threshold == 0 and self._share < 1:
            warnings.warn(
                f"selection child_tuning: less than {self._share:.0%} of the candidates had a gradient other than 0 in "
                "the pass before training, so all of them will be updated; choose candidates that the task uses "
                "(selection.parameters), or a smaller selection.keep_share",
                stacklevel=2,
            )
        self._keep(information >= threshold)

    def _keep(self, mask: Tensor) -> None:
        keep_own(self._mask, mask, list(self._candidates.values()))
        self._kept = mask.count_nonzero() / mask.numel()

    def masks(self, readings: Readings) -> Masks:
        return present_masks(list(self._candidates), self._mask.pieces, readings.gradients["total"])

    def log(self) -> dict[str, Tensor]:
        return {"kept_share": self._kept}

    def state_dict(self) -> dict[str, Tensor]:
        return {"mask": all_elements(self._mask, list(self._candidates.values())).bool()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self._keep(state["mask"])


class RandomChild(Selector):
    """The children of variant F: a new mask every step, the same on all processes and after a resume."""

    def __init__(self, settings: ChildTuning, run: Run) -> None:
        self._run = run
        candidates = settings.candidates(run.model)
        self._names = list(candidates)
        parameters = list(candidates.values())
        self._levels = max(round(settings.keep_share * LEVELS), 1)
        self._mask = flat_like(parts(parameters))
        self._draws = SixteenBits(parameters)
        self._kept = torch.ones(())

    def masks(self, readings: Readings) -> Masks | None:
        if self._levels == LEVELS:
            return None
        numbers = self._draws.draw(self._run.generator("child_tuning", readings.at.step))
        self._kept = numbers.lt_(LOWEST + self._levels).count_nonzero() / len(numbers)
        torch._foreach_copy_(self._mask.pieces, self._draws.own)
        self._mask.whole.mul_(LEVELS / self._levels)
        return present_masks(self._names, self._mask.pieces, readings.gradients["total"])

    def log(self) -> dict[str, Tensor]:
        return {"kept_share": self._kept}
