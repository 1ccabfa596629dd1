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


def set_dropout(model: nn.Module, probability: float) -> None:
    """Give every dropout of the model the same probability."""
    for module, attribute in list(dropout_sites(model)):
        setattr(module, attribute, probability)
