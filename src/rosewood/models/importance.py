"""How much the loss reacts to every single weight: sums of squared gradients."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from rosewood.protocol import Batch, Call
from rosewood.tensors.distributed import average_
from rosewood.tensors.gradients import LossScale, slopes
from rosewood.tensors.shards import flat_like, part, parts, stacked_norms


class SquaredGradients:
    """Sums of squared gradients for the elements of some parameters.

    Child-Tuning and RoAST divide the sum by the number of batches; what they do with it, ranks and quantiles, does
    not change by that, so it is left out.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], loss_scale: LossScale | None = None) -> None:
        self._parameters = list(parameters)
        self._loss_scale = loss_scale
        self.sums = flat_like(parts(self._parameters))

    def add(self, gradients: Sequence[Tensor | None], factor: Tensor | None = None) -> None:
        """Add the squares of `factor` times the gradients, one a parameter; a missing gradient is zero."""
        known = [(piece, part(g)) for piece, g in zip(self.sums.pieces, gradients, strict=True) if g is not None]
        if not known:
            return
        pieces, found = map(list, zip(*known, strict=True))
        if factor is not None:
            found = list(torch._foreach_mul(found, factor))
        torch._foreach_addcmul_(pieces, found, found)

    def add_pass(
        self, call: Call, model: nn.Module, steps: Iterable[Sequence[Batch]], clip_each_norm: float | None = None
    ) -> None:
        """One pass over the data with the task's loss; each optimiser step counts with the square of its gradient.

        `clip_each_norm` clips every parameter's gradient on its own. With several processes a step has the batches
        of all of them. A step with NaN or infinity does not count: it would be all that counts.
        """
        left_out = 0
        for batches in steps:
            gradients = self._mean_gradients(call, model, batches)
            average_(gradients)
            if not stacked_norms(gradients).isfinite().all():
                left_out += 1
                continue
            self.add(gradients if clip_each_norm is None else _each_clipped(gradients, clip_each_norm))
        if left_out:
            warnings.warn(f"NaN or infinity in {left_out} steps of the pass before training: left out", stacklevel=2)

    def _mean_gradients(self, call: Call, model: nn.Module, batches: Sequence[Batch]) -> list[Tensor]:
        """This process's share of the gradients of the mean over all predictions of a step."""
        total: list[Tensor] = []
        count = torch.zeros((), dtype=torch.float64, device=self._parameters[0].device)
        trainable = [p for p in model.parameters() if p.requires_grad]
        for batch in batches:
            # The bare model: a wrapper for several processes would wait for a backward that never comes.
            output = call(batch, model)
            loss = output.loss * output.prediction_count()
            found = slopes(loss, self._parameters, self._loss_scale, trainable)
            total = list(torch._foreach_add(total, found)) if total else found
            count += output.prediction_count()
        average_([count])
        return list(torch._foreach_div(total, max(count.item(), 1.0)))


def _each_clipped(gradients: list[Tensor], limit: float) -> list[Tensor]:
    """What torch.nn.utils.clip_grad_norm_ does to a single tensor, for each of them."""
    factors = (limit / (stacked_norms(gradients) + 1e-6)).clamp(max=1.0)
    return list(torch._foreach_mul(parts(gradients), list(factors.unbind())))
