"""How a model runs: training or evaluation mode, dropout, repeated random numbers, the fastest device, precision."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd
from transformers import PreTrainedModel

from rosewood.protocol import Batch, Call, Output
from rosewood.tensors.draws import forked


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Inside, the model is in evaluation mode; afterwards each module is in the mode that it had."""
    # Module by module: a linear probe keeps its encoder in eval mode while the head trains.
    before = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in before:
            module.training = training


Model = TypeVar("Model", bound=nn.Module)


def accelerated(model: Model) -> Model:
    """The model itself, moved to the accelerator if this machine has one."""
    return model.to(torch.accelerator.current_accelerator()) if torch.accelerator.is_available() else model


def has_bfloat16(device: torch.device | None = None) -> bool:
    """Whether a device, by default the fastest one here, computes in bfloat16 itself.

    Elsewhere bfloat16 works too, but is slower than float32: processors without AVX-512 BF16 or AMX, and old GPUs.
    """
    # A build of torch for GPUs names an accelerator where there is none.
    here = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    device = device or here or torch.device("cpu")
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type == "cpu":
        return any(there is True for name, there in torch.cpu.get_capabilities().items() if "bf16" in name)
    return device.type in ("xpu", "mps")


def precision_on(model: PreTrainedModel, asked: str) -> str:
    """The precision that was asked for; auto is bfloat16 where the device of the model has it."""
    return asked if asked != "auto" else "bfloat16" if has_bfloat16(model.device) else "float32"


def dropout_sites(model: nn.Module) -> Iterator[tuple[nn.Module, str]]:
    """Every `(module, attribute)` that holds a dropout probability.

    Most are nn.Dropout modules; some architectures (Llama, ModernBERT, T5) keep a plain number for their attention.
    """
    for module in model.modules():
        if isinstance(module, _DropoutNd):
            yield module, "p"
            continue
        for attribute, value in vars(module).items():
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if "dropout" in attribute and number:  # layerdrop and drop_path skip whole layers
                yield module, attribute


def has_dropout(model: nn.Module) -> bool:
    """Whether two training passes over one input can differ."""
    return any(getattr(module, attribute) > 0 for module, attribute in dropout_sites(model))


class DropoutSetting:
    """Gives every dropout of a model the same probability, until it is undone."""

    def __init__(self, model: nn.Module, probability: float) -> None:
        self._before = [(module, attribute, getattr(module, attribute)) for module, attribute in dropout_sites(model)]
        for module, attribute, _ in self._before:
            setattr(module, attribute, probability)

    def undo(self) -> None:
        for module, attribute, probability in self._before:
            setattr(module, attribute, probability)


class SameDraws:
    """Gives several passes the same random numbers, hence the same dropout; only the first moves the generators on."""

    def __init__(self, call: Call, batch: Batch) -> None:
        self._call = call
        self._device: torch.device = batch["input_ids"].device
        self._start: tuple[Tensor, Tensor | None] | None = None

    def __call__(self, batch: Batch, model: nn.Module | None = None) -> Output:
        with self._from_the_start():
            return self._call(batch, model)

    @contextmanager
    def _from_the_start(self) -> Iterator[None]:
        on_device = None if self._device.type == "cpu" else torch.get_device_module(self._device)
        if self._start is None:
            self._start = (torch.get_rng_state(), on_device and on_device.get_rng_state(self._device))
            yield
            return
        with forked(self._device):
            torch.set_rng_state(self._start[0])
            if on_device is not None:
                on_device.set_rng_state(self._start[1], self._device)
            yield
