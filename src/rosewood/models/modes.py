"""How a model runs, and which of its outputs are predictions, so that no other part asks what the task is.

Modes: training or evaluation, dropout, repeated random numbers, the fastest device, precision.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.dropout import _DropoutNd
from transformers import PreTrainedModel
from transformers.loss.loss_utils import ForCausalLMLoss

from rosewood.models.sites import real_tokens
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


IGNORED = -100  # the label of what a loss does not count, as everywhere in PyTorch and transformers


class Predictions:
    """Reads the outputs of one model; the labels of a batch say what kind of task it is.

    - One label per example: every example is a prediction.
    - One label per token (token classification, masked and causal language models, decoders): every token whose label
      is not -100 is one. In a causal language model position t predicts label t + 1.
    - A number for each of several labels (multi-label classification): every example is a prediction, of as many
      independent yes-or-no distributions as there are labels.

    The model's own loss is a mean over the same predictions.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        # Labels of a decoder belong to its own tokens, and the padding of the input says nothing about them.
        self._beside_input = not getattr(getattr(model, "config", None), "is_encoder_decoder", False)

    @cached_property
    def _ahead(self) -> bool:
        """Whether each position predicts the label of the next one."""
        return self._beside_input and getattr(self._model, "loss_function", None) is ForCausalLMLoss

    def of(self, loss: Tensor, logits: Tensor, batch: Batch) -> Output:
        """What a pass over the batch has predicted."""
        labels = batch.get("labels")
        if labels is None or logits is None:
            return Output(loss, logits)
        if labels.is_floating_point() and labels.shape == logits.shape:
            # sigmoid(z) is the first of softmax(z, 0).
            return Output(loss, torch.stack([logits, torch.zeros_like(logits)], dim=-1))
        if labels.dim() == 1 or labels.dim() != logits.dim() - 1:
            return Output(loss, logits)
        counted = self._counted(labels)
        # The mean over no token at all is not a number; such a batch adds nothing.
        loss = torch.where(counted.any(), loss, torch.zeros_like(loss))
        return Output(loss, logits, counted, real_tokens(batch) if self._beside_input else torch.ones_like(counted))

    def count(self, batch: Batch) -> Tensor:
        """How many predictions the loss of this batch is a mean over."""
        labels = batch.get("labels")
        if labels is None or labels.is_floating_point() or labels.dim() == 1:
            return torch.tensor(len(next(iter(batch.values()))))
        return self._counted(labels).sum()

    def _counted(self, labels: Tensor) -> Tensor:
        """True where a position's prediction is compared with a label, `(batch, tokens)`."""
        counts = labels != IGNORED
        return functional.pad(counts[:, 1:], (0, 1)) if self._ahead else counts
