"""Mixout: dropout towards the pre-trained weights instead of towards zero."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from rosewood.models.adapters import low_rank_changes, start_problems
from rosewood.models.modes import DropoutSetting
from rosewood.models.parameters import PretrainedTether, linear_weight_names, pretrained_names
from rosewood.protocol import Anchor, Progress, Run
from rosewood.tensors.draws import LEVELS, LOWEST, SixteenBits
from rosewood.tensors.shards import part, parts, replaced

if TYPE_CHECKING:
    from rosewood.recipe import Stage


@dataclass(frozen=True)
class Mixout(Anchor):
    """Puts every weight back to its pre-trained value with some probability, drawn again for every batch.

    Forward and backward of a batch run with W~ = [b W0 + (1 - b) W - m W0] / (1 - m), b ~ Bernoulli(m) (Lee, Cho
    and Kang, ICLR 2020), which is W0 + k (W - W0) with k = (1 - b) / (1 - m). The mean over masks is W, and the
    gradient of W is k times that of W~. Evaluation sees W.

    Deviations:
    - The original code mixes the weights of linear layers only (`scope="linear"`), with one mask for all outputs of a
      layer (`level="input_neuron"`), and turns dropout off (`dropout=0`). The default is what the paper's text says:
      every parameter, element by element, and the model keeps its dropout. `level="input_neuron"` changes the weights
      of linear layers only; embeddings, biases and norms stay element by element.
    - The original code's backward forgets the factor 1 / (1 - m); here the gradient is the true one.
    - RIFT's Adv-Mixout uses m = 0.6, but its official code wraps a module without parameters of its own and so does
      nothing. Here every submodule is reached. The head has no pre-trained value and is never mixed.
    - On a LoRA adapter, W = W0 + s B A, the pre-trained value is that of B A, which is 0. `level="element"` mixes the
      elements of B with 0, each of which is what one direction of A adds to one output; the mean over masks is W, but
      k is not drawn for each element of W, which would need the whole matrix. `level="input_neuron"` mixes the
      columns of A with 0, which is the original's mask on W, exactly.
    - Where the weights below a LoRA adapter are not at their pre-trained values, because the model was fine-tuned
      before, they are mixed too, and so are frozen weights, as if they could move: the mean over masks is still W.
      `level="input_neuron"` has one mask for a weight and the adapter on it.
    - m is rounded to a multiple of 2^-16, the resolution of the random numbers.
    - The mask is drawn per micro-batch, as it is per forward in the original. So a batch that is cut into accumulated
      parts sees several masks in one step, and their gradients are averaged.
    """

    needs_pretrained = True
    changes_weights = True

    probability: Annotated[float, Field(ge=0, le=0.99)] = 0.9
    scope: Literal["all", "linear"] = "all"
    level: Literal["element", "input_neuron"] = "element"
    dropout: Annotated[float, Field(ge=0, lt=1)] | None = None

    def names(self, model: nn.Module) -> list[str]:
        """The parameters that are mixed."""
        whole = pretrained_names(model) if self.scope == "all" else list(linear_weight_names(model))
        return whole + self._factors(model)

    def frozen(self, run: Run) -> list[str]:
        """The parameters that are mixed although they do not move, because they are not at their pre-trained values."""
        return list(run.frozen) if self.scope == "all" else list(linear_weight_names(run.model, list(run.frozen)))

    def _factors(self, model: nn.Module) -> list[str]:
        """The factor of each LoRA adapter that is mixed with 0."""
        changes = [c for c in low_rank_changes(model) if self.scope == "all" or not c.embedding]
        return [c.down if self.level == "input_neuron" and not c.embedding else c.up for c in changes]

    def input_axes(self, model: nn.Module, names: Sequence[str]) -> dict[str, int]:
        """Those of the parameters with one mask for all outputs, and which of their axes is the input."""
        if self.level == "element":
            return {}
        factors = {c.down: 1 for c in low_rank_changes(model) if not c.embedding}
        return linear_weight_names(model, names) | factors

    def problems(self, stage: Stage) -> list[str]:
        perturbation = "" if stage.perturbation is None else stage.perturbation.name
        if self.dropout == 0 and (perturbation == "dropout" or getattr(stage.selection, "reads_first", False)):
            other = "perturbation dropout" if perturbation == "dropout" else f"selection {stage.selection.name}"
            return [
                f"anchor mixout turns dropout off (dropout=0), and {other} compares passes that differ by dropout: "
                "leave the setting dropout of mixout out"
            ]
        return []

    def problems_with(self, model: nn.Module) -> list[str]:
        if self.names(model):
            return start_problems(model, "anchor mixout")
        return [
            f"anchor mixout mixes weights with their pre-trained values, but {type(model).__name__} has no trainable "
            f"parameter in its base model that scope={self.scope} covers: leave the anchor out"
        ]

    def memory(self) -> str:
        return "pre-trained weights, mixed weights, multipliers"

    def explain(self, stage: Stage) -> list[str]:
        which = "all parameters" if self.scope == "all" else "weights of linear layers"
        each = "element" if self.level == "element" else "input neuron"
        return [
            f"W~ = W0 + k (W - W0),  k = (1 - b) / {1 - self.probability:g},  b ~ Bernoulli({self.probability:g}) "
            f"per {each}  ({which} of the base model)",
            "dL/dW = k dL/dW~",
        ]

    def start(self, run: Run) -> MixoutTether:
        return MixoutTether(self, run)


class MixoutTether(PretrainedTether):
    """Exchanges the storage of the weights for a mixed one while a micro-batch runs.

    The weights themselves are never written to, so what comes back is what was there, and gradient checkpointing,
    which runs forwards again inside the backward, finds the mixed weights.
    """

    def __init__(self, settings: Mixout, run: Run) -> None:
        names = settings.names(run.model) + settings.frozen(run)
        super().__init__(run, names)
        self._run = run
        self._dropout = None if settings.dropout is None else DropoutSetting(run.model, settings.dropout)
        levels = round(settings.probability * LEVELS)
        self._threshold = LOWEST + levels
        self._scale = LEVELS / (LEVELS - levels)
        self._mixed = [torch.empty_like(part(parameter)) for parameter in self.parameters]
        changes = low_rank_changes(run.model) if settings.level == "input_neuron" else []
        shared = {c.base: c for c in changes if c.base in names and c.down in names}
        drawn = [name for name in names if name not in shared]
        parameters = dict(zip(names, self.parameters, strict=True))
        own = [parameters[name] for name in drawn]
        self._draws = SixteenBits(own, self._shapes(settings, parameters, drawn))
        self._drawn = [part(p).new_empty(mine.shape) for p, mine in zip(own, self._draws.own, strict=True)]
        k = dict(zip(drawn, self._drawn, strict=True))
        k |= {base: k[c.down].T if c.transposed else k[c.down] for base, c in shared.items()}
        self._factors = {name: k[name].expand_as(m) for name, m in zip(names, self._mixed, strict=True)}

    def _shapes(self, settings: Mixout, parameters: Mapping[str, Tensor], drawn: Sequence[str]) -> list[list[int]]:
        """The shape of each k: that of a parameter, or of its input axis where a mask counts for all outputs."""
        inputs = settings.input_axes(self._run.model, drawn)
        shapes = [list(parameters[name].shape) for name in drawn]
        for name, shape in zip(drawn, shapes, strict=True):
            if name in inputs:
                shape[1 - inputs[name]] = 1
        return shapes

    def _draw(self, at: Progress) -> None:
        """k for this micro-batch: equal on all processes and after a resume."""
        self._draws.draw(self._run.generator("mixout", at.step, at.micro_batch)).ge_(self._threshold)
        torch._foreach_copy_(self._drawn, self._draws.own)
        torch._foreach_mul_(self._drawn, self._scale)

    def leave(self) -> None:
        if self._dropout is not None:
            self._dropout.undo()

    @contextmanager
    def around(self, at: Progress) -> Iterator[None]:
        self._draw(at)
        with torch.no_grad():
            torch._foreach_copy_(self._mixed, parts(self.pretrained))
            # Interpolation is exact at both ends: k = 0 gives W0 and k = 1 gives W, bit for bit.
            torch._foreach_lerp_(self._mixed, parts(self.parameters), list(self._factors.values()))
        with replaced(self._run.model, self.parameters, self._mixed):
            yield

    def pull_back(self, gradients: Mapping[str, Tensor]) -> None:
        mixed = [name for name in self.names if name in gradients]
        if mixed:
            torch._foreach_mul_([part(gradients[name]) for name in mixed], [self._factors[name] for name in mixed])
