"""Training and evaluation mode of a model, and the device on which it computes fastest."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import nn


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
