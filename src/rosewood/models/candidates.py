"""Which parameters a selection chooses among, and how much the loss reacts to each of their weights."""

from __future__ import annotations

import re
import warnings
from collections.abc import Container, Iterable, Sequence

import torch
from torch import Tensor, nn

from rosewood.errors import RecipeError
from rosewood.protocol import Batch, Call, Masks, is_attached
from rosewood.tensors.distributed import average_
from rosewood.tensors.gradients import LossScale, slopes
from rosewood.tensors.shards import flat_like, part, parts, stacked_norms


def block_prefixes(model: nn.Module) -> list[str]:
    """Name prefixes of the repeated blocks: the outermost module lists of the encoder (or of a decoder-only model).

    In an encoder-decoder model only the encoder counts. Nested lists belong to the outermost one.
    """
    root = model
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        root = model.get_encoder()  # type: ignore[operator]
    inside = {id(module) for module in root.modules()}
    prefixes: list[str] = []
    for name, module in model.named_modules():
        nested = any(name.startswith(prefix) for prefix in prefixes)
        if isinstance(module, nn.ModuleList) and id(module) in inside and not nested:
            prefixes.append(f"{name}.")
    return prefixes


def candidate_names(model: nn.Module, pattern: str | None = None, biases: bool = False) -> list[str]:
    """Trainable parameters inside the repeated blocks, with or without biases, or those whose name matches `pattern`.

    On BERT and RoBERTa the rule equals the official codes': ROSE's without biases ("layer" and "weight" in the name),
    Child-Tuning's and RoAST's with them ("layer" in the name). Unlike those, it also works where blocks are called
    otherwise, and leaves out embeddings, pooler, final norm and head.
    """
    named = model.named_parameters()
    names = [name for name, parameter in named if parameter.requires_grad and not is_attached(name)]
    if pattern is not None:
        return _matching(names, pattern, type(model).__name__)
    prefixes = tuple(block_prefixes(model))
    inside = [name for name in names if name.startswith(prefixes)]
    chosen = inside if biases else [name for name in inside if "bias" not in name.rsplit(".", 1)[-1]]
    if not chosen:
        raise RecipeError(
            f"{type(model).__name__} has no trainable parameter inside repeated blocks (an nn.ModuleList), so there "
            "is nothing to select among. Name the candidates by a regular expression: --set selection.parameters=..."
        )
    return chosen


def candidates_by_name(names: Iterable[str], pattern: str | None = None) -> list[str]:
    """The candidates where only names are known: weights inside numbered modules that have modules of their own.

    `bert.encoder.layer.0.output.dense.weight` is one, `classifier.0.weight` is not. Beside an encoder, the blocks of a
    decoder do not count. On the usual architectures these are the names that `candidate_names` finds.
    """
    names = list(names)
    if pattern is not None:
        return _matching(names, pattern, "this model")
    inside = [name for name in names if re.search(r"(?:^|\.)\d+\.\w+\.", name)]
    halves = [set(name.split(".")) & {"encoder", "decoder"} for name in inside]
    both = {"encoder"} in halves and {"decoder"} in halves
    chosen = [name for name, half in zip(inside, halves, strict=True) if not (both and "decoder" in half)]
    chosen = [name for name in chosen if "bias" not in name.rsplit(".", 1)[-1]]
    if not chosen:
        raise RecipeError(
            "none of the parameters is a weight inside repeated blocks (named like encoder.layer.0.dense.weight), so "
            f"there is nothing to select among. The names look like {', '.join(names[:3])}. Name the candidates by a "
            "regular expression: parameters=..."
        )
    return chosen


def _matching(names: list[str], pattern: str, model: str) -> list[str]:
    try:
        chosen = [name for name in names if re.search(pattern, name)]
    except re.error as error:
        raise RecipeError(f"selection.parameters: {pattern!r} is not a regular expression: {error}") from None
    if not chosen:
        raise RecipeError(
            f"no trainable parameter of {model} matches {pattern!r}; its names look like {', '.join(names[:3])}"
        )
    return chosen


def present_masks(names: Sequence[str], masks: Sequence[Tensor], gradients: Container[str]) -> Masks:
    """The masks of those parameters that have a gradient in this step."""
    present = [(name, mask) for name, mask in zip(names, masks, strict=True) if name in gradients]
    return Masks([name for name, _ in present], [mask for _, mask in present])


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
