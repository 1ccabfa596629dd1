"""ROSE-Second as an optimiser, for training loops without the Trainer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from torch import Tensor

from rosewood.errors import RecipeError
from rosewood.models.parameters import candidates_by_name
from rosewood.protocol import Progress, Readings
from rosewood.selections.rose import Rose, RoseSelector
from rosewood.tensors.statistics import RuleName
from rosewood.training.masked_adamw import MaskedAdamW


class RoseAdamW(MaskedAdamW):
    """AdamW that moves only the weight tensors which ROSE-Second selects (Jiang et al., EMNLP 2022).

    It takes the place of `torch.optim.AdamW` in a loop; the steps are those of the recipe `rose-second`, bit for bit.
    In each step it compares each gradient with its running average and freezes the tensors whose gradient is small
    beside it. A frozen tensor neither moves nor decays. This costs no extra pass. Clip gradients before `step`.

    Learning-rate schedulers, closures, `state_dict` and `torch.amp.GradScaler` work as with `torch.optim.AdamW`. In
    distributed training, gradients must be the same on all processes when `step` is called, as DDP leaves them.

    Args:
        params: named parameters: `model.named_parameters()`, or groups of them as dictionaries with the key `params`. A
            plain iterable is split in two groups, as the Trainer does: biases and the weights of norms do not decay.
        lr: the learning rate.
        betas: how slowly the averages of gradients and of their squares change.
        eps: added to the root of the average square.
        weight_decay: of all weights but biases and norms.
        keep_quantile: the share of the candidates that may move, or a rule that finds it in each step's risks: `auto`,
            `outliers`, `otsu` or `gap`.
        warmup_steps: in the first steps everything moves.
        level: whether whole weight `tensor`s are selected, or each `element` on its own.
        parameters: a regular expression for the names of the candidates, in place of the weights inside the repeated
            blocks (`encoder.layer.0.…`). What is not a candidate always moves.
        foreach: one kernel for many tensors; `False` goes tensor by tensor.
        fused: the fused kernel, which is the default unless `foreach` is given. It takes floating-point parameters.

    Raises:
        RecipeError: the parameters have no names, none of them is a candidate, or a setting is out of range.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from rosewood.optim import RoseAdamW
        >>> model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), num_layers=2)
        >>> optimizer = RoseAdamW(model.named_parameters(), lr=1e-3)
        >>> for _ in range(3):
        ...     loss = model(torch.randn(4, 5, 8)).square().mean()
        ...     loss.backward()
        ...     norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        ...     optimizer.step()
        ...     optimizer.zero_grad()
        >>> sorted(set(optimizer.multipliers.values()))  # some weight tensors were frozen in the last step
        [0.0, 1.0]
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 5e-5,
        betas: tuple[float, float] = (0.9, 0.98),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        *,
        keep_quantile: float | RuleName = 0.6,
        warmup_steps: int = 0,
        level: Literal["tensor", "element"] = "tensor",
        parameters: str | None = None,
        foreach: bool | None = None,
        fused: bool | None = None,
    ) -> None:
        self.selection = Rose(
            order="second",
            keep_quantile=keep_quantile,
            warmup_steps=warmup_steps,
            level=level,
            parameters=parameters,
        )
        if foreach is None and fused is None:
            fused = True
        super().__init__(_groups(params, weight_decay), lr, betas, eps, weight_decay, foreach=foreach, fused=fused)
        candidates_by_name(self._named(), parameters)  # groups may be added later, so it is only checked here

    def _named(self) -> dict[str, Tensor]:
        groups = (zip(group["param_names"], group["params"], strict=True) for group in self.param_groups)
        return {name: parameter for group in groups for name, parameter in group if parameter.requires_grad}

    def _move(self) -> None:
        self._select()
        super()._move()

    def _select(self) -> None:
        named = self._named()
        gradients = {name: parameter.grad for name, parameter in named.items() if parameter.grad is not None}
        if not gradients:
            return
        present = {name: named[name] for name in gradients}
        one = next(iter(gradients.values())).new_ones(())
        readings = Readings(
            gradients={"total": gradients, "ce": gradients},
            factors={"total": one, "ce": one},
            clip=one,
            momentum={name: self.state[p]["exp_avg"] for name, p in present.items() if self.state.get(p)},
            beta1=self.param_groups[0]["betas"][0],
            at=Progress(self._steps_done(), 0),
        )
        selector = RoseSelector(self.selection, candidates_by_name(named, self.selection.parameters))
        self.mask(selector.masks(readings), present)

    def _steps_done(self) -> int:
        if not self.selection.warmup_steps:
            return 0  # nothing else depends on it, and reading it would wait for the device
        return max((int(state["step"]) for state in self.state.values() if "step" in state), default=0)

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"selection": self.selection}

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        if "param_names" not in self.param_groups[-1]:
            raise RecipeError(
                "RoseAdamW selects parameters by their names and these have none: pass model.named_parameters() in "
                "place of model.parameters(), also as the params of groups"
            )


def _groups(params: Iterable[Any], weight_decay: float) -> list[Any]:
    """Named parameters in two groups, with and without decay; groups stay as they are."""
    params = list(params)
    if not all(isinstance(each, tuple) for each in params):
        return params
    plain = [_does_not_decay(*each) for each in params]
    decaying = [each for each, without in zip(params, plain, strict=True) if not without]
    others = [each for each, without in zip(params, plain, strict=True) if without]
    groups = [{"params": decaying, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def _does_not_decay(name: str, parameter: Tensor) -> bool:
    return parameter.dim() < 2 or "bias" in name.lower() or "norm" in name.lower()
