"""The part of a model that has pre-trained values, and modules that are trained beside a model.

The optimiser, clipping, the mean over processes, sharding and checkpoints see such modules; selections and other
anchors do not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from rosewood.errors import RunError
from rosewood.models.adapters import encoder, low_rank_changes
from rosewood.protocol import ATTACHED, Run, Tether, is_attached
from rosewood.tensors.shards import divided, parts, replaced, stacked_norms

_WRAPPED = re.compile(r"\.(base_layer|modules_to_save\.[^.]+)(?=\.)")


def pretrained_names(model: nn.Module) -> list[str]:
    """Trainable parameters of the base model: everything but the task's head, which starts from random numbers.

    The factors of a LoRA adapter are left out: only their product, which starts from 0, has a pre-trained value.
    """
    below = encoder(model)
    inside = {id(parameter) for parameter in (model if below is None else below).parameters()}
    factors = {name for change in low_rank_changes(model) for name in change.factors}
    trainable = [(name, p) for name, p in model.named_parameters() if p.requires_grad and not is_attached(name)]
    return [name for name, p in trainable if id(p) in inside and name not in factors]


def values_in(model: nn.Module, origin: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The values of the encoder's parameters in another encoder, by their names here; what that lacks is left out."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    below = encoder(model)
    found: dict[str, Tensor] = {}
    for inner, parameter in (model if below is None else below).named_parameters():
        # PEFT puts layers of its own around some, and keeps the original of a module that it trains as a whole.
        key = _WRAPPED.sub("", inner)
        if key not in origin or ".original_module." in inner:
            continue
        if origin[key].shape != parameter.shape:
            raise RunError(
                f"the pre-trained model does not fit the model that is trained: {key} has the shape "
                f"{tuple(origin[key].shape)} there and {tuple(parameter.shape)} here. Name the model that this one was "
                "fine-tuned from"
            )
        device = "cpu" if parameter.is_meta else parameter.device
        found[names[id(parameter)]] = origin[key].detach().to(device, parameter.dtype)
    if not found:
        raise RunError(
            "the pre-trained model has no weight in common with the model that is trained: name the model that this "
            "one was fine-tuned from"
        )
    return found


def linear_weight_names(model: nn.Module, names: Sequence[str] | None = None) -> dict[str, int]:
    """Those of the pre-trained parameters that are weights of linear layers, and which of their axes is the input.

    `names` are the parameters to choose from, all trainable ones of the base model by default.
    """
    # GPT-2 calls its linear layers Conv1D and stores their weights as (in, out).
    layers = {f"{n}.weight": 0 if isinstance(m, Conv1D) else 1 for n, m in model.named_modules() if _is_linear(m)}
    return {name: layers[name] for name in (pretrained_names(model) if names is None else names) if name in layers}


def _is_linear(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear | Conv1D)


class PretrainedTether(Tether):
    """Knows some parameters and their pre-trained values; a factor of a LoRA adapter has the value 0.

    The values are not part of a checkpoint, because a run that resumes loads the same pre-trained model again;
    their norms are, and those of the weights below a LoRA adapter, so that another model is noticed.
    """

    def __init__(self, run: Run, names: list[str]) -> None:
        self.names = names
        parameters = dict(run.model.named_parameters())
        self.parameters = [parameters[name] for name in names]
        changes = low_rank_changes(run.model)
        factors = {name for change in changes for name in change.factors}
        values = {**run.frozen, **run.pretrained}
        self.pretrained = [
            torch.zeros_like(p) if name in factors else divided(values[name], p)
            for name, p in zip(names, self.parameters, strict=True)
        ]
        below = [parameters[change.base].detach() for change in changes if change.base in parameters]
        # Quantised weights have no norm.
        self._known = self.pretrained + [w for w in (*below, *run.frozen.values()) if w.is_floating_point()]

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


class LentWeights:
    """Lends a model other values for some of its parameters, so that a teacher needs no body of its own."""

    def __init__(self, model: nn.Module, parameters: Sequence[Tensor]) -> None:
        self._model, self._parameters = model, list(parameters)
        self._modules = list(model.modules())  # walking through a model takes milliseconds

    @contextmanager
    def lent(self, values: Sequence[Tensor], training: bool = False) -> Iterator[None]:
        """Inside, the parameters have these values, and dropout is on only while `training`; then all is as before."""
        modes = [module.training for module in self._modules]
        self._model.train(training)
        try:
            with replaced(self._model, self._parameters, parts(values)):
                yield
        finally:
            for module, mode in zip(self._modules, modes, strict=True):
                module.training = mode


def attach(model: nn.Module, modules: Mapping[str, nn.Module]) -> None:
    """Make modules parts of the model, by the names of their owners."""
    for owner, module in modules.items():
        model.add_module(f"{ATTACHED}{owner}", module)


def detach(model: nn.Module) -> None:
    """Give the model back without any of them."""
    for name in [name for name, _ in model.named_children() if is_attached(name)]:
        delattr(model, name)


def attached(model: nn.Module, owner: str) -> nn.Module:
    """The module that `attach` was given for this owner."""
    return model.get_submodule(f"{ATTACHED}{owner}")
