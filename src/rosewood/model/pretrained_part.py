"""The part of a model that has pre-trained values, and the tether that remembers them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from rosewood.errors import RunError
from rosewood.model.adapters import encoder, low_rank_changes
from rosewood.model.attached import is_attached
from rosewood.protocol import Run, Tether, stacked_norms
from rosewood.tensors.shards import divided


def pretrained_names(model: nn.Module) -> list[str]:
    """Trainable parameters of the base model: everything but the task's head, which starts from random numbers.

    The factors of a LoRA adapter are left out: only their product, which starts from 0, has a pre-trained value.
    """
    below = encoder(model)
    inside = {id(parameter) for parameter in (model if below is None else below).parameters()}
    factors = {name for change in low_rank_changes(model) for name in change.factors}
    trainable = [(name, p) for name, p in model.named_parameters() if p.requires_grad and not is_attached(name)]
    return [name for name, p in trainable if id(p) in inside and name not in factors]


def linear_weight_names(model: nn.Module) -> dict[str, int]:
    """Those of the pre-trained parameters that are weights of linear layers, and which of their axes is the input."""
    # GPT-2 calls its linear layers Conv1D and stores their weights as (in, out).
    layers = {f"{n}.weight": 0 if isinstance(m, Conv1D) else 1 for n, m in model.named_modules() if _is_linear(m)}
    return {name: layers[name] for name in pretrained_names(model) if name in layers}


def _is_linear(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear | Conv1D)


class PretrainedTether(Tether):
    """Knows some parameters and the values they had before fine-tuning; a factor of a LoRA adapter has the value 0.

    The values are not part of a checkpoint, because a run that resumes loads the same pre-trained model again;
    their norms are, and those of the weights below a LoRA adapter, so that another model is noticed.
    """

    def __init__(self, run: Run, names: list[str]) -> None:
        self.names = names
        parameters = dict(run.model.named_parameters())
        self.parameters = [parameters[name] for name in names]
        changes = low_rank_changes(run.model)
        factors = {name for change in changes for name in change.factors}
        self.pretrained = [
            torch.zeros_like(p) if name in factors else divided(run.pretrained[name], p)
            for name, p in zip(names, self.parameters, strict=True)
        ]
        below = [parameters[change.base].detach() for change in changes if change.base in parameters]
        # Quantised weights have no norm.
        self._known = self.pretrained + [weight for weight in below if weight.is_floating_point()]

    def state_dict(self) -> dict[str, Tensor]:
        return {"pretrained_norms": self._norms()}

    def _norms(self) -> Tensor:
        return stacked_norms(self._known) if self._known else torch.zeros(0)

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        saved, found = state["pretrained_norms"], self._norms()
        if saved.shape != found.shape or not torch.allclose(saved, found, rtol=1e-4):
            raise RunError(
                "the checkpoint belongs to a run that started from other pre-trained weights: resume with a trainer "
                "that is given the same pre-trained model, not the checkpoint's, as the first time"
            )
