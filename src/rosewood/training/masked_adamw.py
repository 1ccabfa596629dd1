"""AdamW whose step can be scaled, or frozen, parameter by parameter."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.optim.adamw import adamw

from rosewood.protocol import Masks
from rosewood.tensors.shards import parts


class _Slice(NamedTuple):
    """The tensors of some parameters, or this process's parts of them, as parallel lists."""

    parameters: list[Tensor]
    gradients: list[Tensor]
    averages: list[Tensor]
    squares: list[Tensor]
    steps: list[Tensor]


class MaskedAdamW(torch.optim.AdamW):
    """torch.optim.AdamW with a multiplier M >= 0 for each parameter (ROSE, Algorithm 1, lines 8-13).

    `multipliers` maps parameters to a number or to a tensor of their (own part's) shape; what is missing counts as 1,
    and with nothing but ones the step is torch.optim.AdamW's, bit for bit. With M the gradient becomes M g + (1 - M) m,
    and update and decay are multiplied by M. M = 0 leaves weight and momentum exactly as they are.

    A number costs no memory and no extra kernel: M = 0 only ages the second moment; any other number scales the
    learning rate, which is the same thing. Parameters with equal numbers share one fused call.

    `form="hf"` is the AdamW of old Hugging Face versions and of the official ROSE code: epsilon is added to the
    uncorrected second moment, and the decay comes after the step, on the updated weight.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        *,
        foreach: bool | None = None,
        fused: bool | None = None,
        form: Literal["torch", "hf"] = "torch",
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, foreach=foreach, fused=fused)
        # GradScaler must skip a step before it starts, not inside the kernel: masks and momentum depend on it.
        self._step_supports_amp_scaling = False
        self.form = form
        self.multipliers: dict[Tensor, float | Tensor] = {}

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._move()
        return loss

    def mask(self, masks: Masks | None, parameters: Mapping[str, Tensor] = MappingProxyType({})) -> None:
        """Set the multipliers of the next step from masks of named parameters; None lets everything move."""
        if masks is None:
            self.multipliers = {}
            return
        # One transfer of a few hundred numbers per step: the price of freezing whole tensors without touching them.
        values = masks.values.tolist() if isinstance(masks.values, Tensor) else masks.values
        named = zip(masks.names, values, strict=True)
        self.multipliers = {parameters[name]: value for name, value in named if name in parameters}

    def __getstate__(self) -> dict[str, Any]:
        own: dict[str, Any] = {"form": self.form, "multipliers": {}, "_step_supports_amp_scaling": False}
        return super().__getstate__() | own

    def _move(self) -> None:
        for group in self.param_groups:
            for multiplier, part in self._by_multiplier(group):
                if isinstance(multiplier, list):
                    self._masked_step(group, part, multiplier)
                elif multiplier == 0:
                    self._frozen_step(group, part)
                else:
                    if multiplier != 1:
                        torch._foreach_lerp_(part.gradients, part.averages, 1 - multiplier)
                    self._plain_step(group, part, group["lr"] * multiplier)

    def _by_multiplier(self, group: dict[str, Any]) -> list[tuple[float | list[Tensor], _Slice]]:
        """The group's parameters in slices of equal multiplier; all elementwise masks make one slice."""
        every = _Slice([], [], [], [], [])
        self._init_group(group, every.parameters, every.gradients, every.averages, every.squares, [], every.steps)
        found: dict[float | None, list[tuple[Tensor, ...]]] = defaultdict(list)
        masks: list[Tensor] = []
        for row in zip(*every, strict=True):
            multiplier = self.multipliers.get(row[0], 1.0)
            if isinstance(multiplier, Tensor):
                masks.append(multiplier.to(row[0].dtype))
            found[None if isinstance(multiplier, Tensor) else float(multiplier)].append(row)
        return [
            (masks if key is None else key, _Slice(*(parts(column) for column in zip(*rows, strict=True))))
            for key, rows in found.items()
        ]

    def _frozen_step(self, group: dict[str, Any], part: _Slice) -> None:
        beta2 = group["betas"][1]
        torch._foreach_add_(part.steps, 1)
        torch._foreach_mul_(part.squares, beta2)
        torch._foreach_addcmul_(part.squares, part.averages, part.averages, value=1 - beta2)

    def _masked_step(self, group: dict[str, Any], part: _Slice, masks: list[Tensor]) -> None:
        before = [parameter.clone() for parameter in part.parameters]
        for gradient, average, mask in zip(part.gradients, part.averages, masks, strict=True):
            gradient.lerp_(average, 1 - mask)
        if self.form == "hf":
            # The decay comes after the masked step, so it cannot be masked together with it.
            _hf_adamw(part, group["lr"], group["betas"], group["eps"], 0.0)
        else:
            self._plain_step(group, part, group["lr"])
        for parameter, start, mask in zip(part.parameters, before, masks, strict=True):
            parameter.copy_(start.lerp_(parameter, mask))
            if self.form == "hf":
                parameter.mul_(1 - group["lr"] * group["weight_decay"] * mask)

    def _plain_step(self, group: dict[str, Any], part: _Slice, lr: float) -> None:
        if self.form == "hf":
            return _hf_adamw(part, lr, group["betas"], group["eps"], group["weight_decay"])
        adamw(
            *part[:4],
            [],
            part.steps,
            foreach=group["foreach"],
            fused=group["fused"],
            amsgrad=False,
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            lr=lr,
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            maximize=False,
        )
        return None


def _hf_adamw(part: _Slice, lr: float, betas: tuple[float, float], eps: float, weight_decay: float) -> None:
    beta1, beta2 = betas
    torch._foreach_add_(part.steps, 1)
    torch._foreach_lerp_(part.averages, part.gradients, 1 - beta1)
    torch._foreach_mul_(part.squares, beta2)
    torch._foreach_addcmul_(part.squares, part.gradients, part.gradients, value=1 - beta2)
    denominators = torch._foreach_sqrt(part.squares)
    torch._foreach_add_(denominators, eps)
    times = torch.stack(part.steps).tolist()
    sizes = [-lr * (1 - beta2**t) ** 0.5 / (1 - beta1**t) for t in times]
    torch._foreach_addcdiv_(part.parameters, part.averages, denominators, sizes)
    if weight_decay:
        torch._foreach_mul_(part.parameters, 1 - lr * weight_decay)
