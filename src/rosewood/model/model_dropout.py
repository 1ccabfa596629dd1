"""The dropout inside a model, wherever an architecture keeps it."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn
from torch.nn.modules.dropout import _DropoutNd


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
