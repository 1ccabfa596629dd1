"""Models where they compute fastest."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import nn

Model = TypeVar("Model", bound=nn.Module)


def accelerated(model: Model) -> Model:
    """The model itself, moved to the accelerator if this machine has one."""
    return model.to(torch.accelerator.current_accelerator()) if torch.accelerator.is_available() else model
