"""Steps whose loss or gradients are not finite move nothing; too many in a row end the run and name the cause."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from rosewood.errors import RunError
from rosewood.tensors.shards import stacked_norms


class SkippedSteps:
    """Counts skipped steps; the step after the `limit`-th in a row, if it must be skipped too, raises.

    In a row, because weights that yield NaN yield it for every batch, while a single odd batch passes.
    """

    def __init__(self, limit: int) -> None:
        if limit < 0:
            raise RunError(f"max_skipped_steps is a number of steps, 0 or more, not {limit}")
        self.limit = limit
        self.in_a_row = 0

    def may_end_now(self) -> bool:
        """Whether one more skipped step ends the run."""
        return self.in_a_row == self.limit

    def skip(self, step: int, terms: Mapping[str, Tensor], parameter: str | None) -> None:
        """Count this step, or end the run with what was not finite; `parameter` is known if `may_end_now`."""
        cause = _cause({name: value.item() for name, value in terms.items()})
        if self.may_end_now():
            where = f"; the first parameter with such a gradient is {parameter}" if parameter else ""
            row = f"{self.in_a_row + 1} steps in a row" if self.limit else "one step"
            raise RunError(
                f"NaN or infinity in {row} (max_skipped_steps={self.limit}), at last in step {step}: {cause}{where}. "
                "The weights are those of before. Look at the data of these steps, lower the learning rate, or train "
                "in bf16 or float32 if this was fp16."
            )
        self.in_a_row += 1
        warnings.warn(f"step {step} is skipped, nothing moves: {cause}", stacklevel=2)

    def reset(self) -> None:
        self.in_a_row = 0


def all_finite(values: list[Tensor]) -> bool:
    """Whether no number is NaN or infinite."""
    return bool(torch.stack([value.isfinite().all() for value in values]).all())


def first_not_finite(model: nn.Module) -> str | None:
    """The first parameter, in the model's order, whose gradient has a NaN or an infinity."""
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    finite = stacked_norms(list(gradients.values())).isfinite().tolist() if gradients else []
    return next((name for name, good in zip(gradients, finite, strict=True) if not good), None)


def _cause(terms: Mapping[str, float]) -> str:
    told = ", ".join(f"{name} {value:g}" for name, value in terms.items())
    bad = [name for name, value in terms.items() if not math.isfinite(value)]
    if bad:
        return f"the term {bad[0]} is {terms[bad[0]]:g} (of {told})"
    return f"the terms are finite ({told}), their gradient is not"
