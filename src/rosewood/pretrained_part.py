"""The part of a model that has pre-trained values, and the tether that remembers them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from rosewood.errors import RunError
from rosewood.protocol import Run, Tether, stacked_norms


def pretrained_names(model: nn.Module) -> list[str]:
    """Trainable parameters of the base model: everything but the task's head, which starts from random numbers."""
    inside = {id(parameter) for parameter in getattr(model, "base_model", model).parameters()}
    return [name for name, p in model.named_parameters() if p.requires_grad and id(p) in inside]


def linear_weight_names(model: nn.Module) -> dict[str, int]:
    """Those of the pre-trained parameters that are weights of linear layers, and which of their axes is the input."""
    # GPT-2 calls its linear layers Conv1D and stores their weights as (in, out).
    layers = {f"{n}.weight": 0 if isinstance(m, Conv1D) else 1 for n, m in model.named_modules() if _is_linear(m)}
    return {name: layers[name] for name in pretrained_names(model) if name in layers}


def _is_linear(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear | Conv1D)


class PretrainedTether(Tether):
    """Knows some parameters and the values they had before fine-tuning.

    The values are not part of a checkpoint, because a run that resumes loads the same pre-trained model again;
    their norms are, so that another model is noticed.
    """

    def __init__(self, run: Run, names: list[str]) -> None:
        self.names = names
        parameters = dict(run.model.named_parameters())
        self.parameters = [parameters[name] for name in names]
        self.pretrained = [run.pretrained[name] for name in names]

    def state_dict(self) -> dict[str, Tensor]:
        return {"pretrained_norms": stacked_norms(self.pretrained)}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        saved, found = state["pretrained_norms"], stacked_norms(self.pretrained)
        if saved.shape != found.shape or not torch.allclose(saved, found, rtol=1e-4):
            raise RunError(
                "the checkpoint belongs to a run that started from other pre-trained weights: resume with a trainer "
                "that is given the same pre-trained model, not the checkpoint's, as the first time"
            )
