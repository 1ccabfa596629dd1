"""The loss scaler of fp16, on the CPU: a real GradScaler, put where accelerate would put it on a GPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rosewood.training.trainer import RobustTrainer


def scale_loss(trainer: RobustTrainer, scale: float = 2.0**10) -> None:
    """Give a trainer a scaler; powers of two are exact, so the scale by itself changes no bit."""
    scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=10**6)
    trainer.accelerator.scaler = scaler
    # What accelerate does when mixed precision is fp16, which it refuses to be on a CPU.
    optimizer: Any = trainer
    trainer.accelerator.unscale_gradients = lambda *_: scaler.unscale_(optimizer.optimizer.optimizer)


def overflow_in(trainer: RobustTrainer, steps: set[int]) -> None:
    """Make the gradients of some steps infinite, so that the scaler skips them."""

    def overflow(gradient: Tensor) -> Tensor:
        return gradient * torch.inf if trainer.state.global_step in steps else gradient

    trainer.model.classifier.bias.register_hook(overflow)


class Flushed(torch.autograd.Function):
    """Leaves a value as it is and loses its gradient unless a loss scale has enlarged it, as fp16 loses small ones."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return torch.where(gradient.abs() < 100, 0.0, gradient)
