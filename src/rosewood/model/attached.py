"""Modules that are trained beside a model: parts of it while it trains, so that what treats its weights treats them.

Optimiser, clipping, the mean over processes, sharding and checkpoints see them; selections and other anchors do not.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn

PREFIX = "rosewood_"


def is_attached(parameter: str) -> bool:
    """Whether a parameter of this name belongs to an attached module."""
    return parameter.startswith(PREFIX)


def attach(model: nn.Module, modules: Mapping[str, nn.Module]) -> None:
    """Make modules parts of the model, by the names of their owners."""
    for owner, module in modules.items():
        model.add_module(f"{PREFIX}{owner}", module)


def detach(model: nn.Module) -> None:
    """Give the model back without any of them."""
    for name in [name for name, _ in model.named_children() if is_attached(name)]:
        delattr(model, name)


def attached(model: nn.Module, owner: str) -> nn.Module:
    """The module that `attach` was given for this owner."""
    return model.get_submodule(f"{PREFIX}{owner}")
