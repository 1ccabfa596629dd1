"""Layers: the layer of each parameter, and records of layers over steps as heat maps need them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from torch import nn

from rosewood.models.adapters import encoder, without_adapter
from rosewood.models.candidates import block_prefixes


def layers_of(model: nn.Module) -> dict[str, tuple[str, str]]:
    """Each parameter's layer, and its name within that: `("layer 0", "attention.self.query.weight")`.

    What is not in a repeated block goes by the name of its module: embeddings, pooler, classifier.
    """
    blocks = block_prefixes(model)
    around = [f"{name}." for name, module in model.named_modules() if name and _is_around(module, model)]
    return {name: _place(name, blocks, around) for name, _ in model.named_parameters()}


def _is_around(module: nn.Module, model: nn.Module) -> bool:
    return module is encoder(model) or module is without_adapter(model)


def _place(name: str, blocks: list[str], around: list[str]) -> tuple[str, str]:
    for prefix in blocks:
        if name.startswith(prefix):
            number, _, rest = name.removeprefix(prefix).partition(".")
            kind = "layer" if len(blocks) == 1 else prefix.split(".")[-2]
            return f"{kind} {number}", rest
    for prefix in around:  # the outer one first
        name = name.removeprefix(prefix)
    first, _, rest = name.partition(".")
    return first, rest or first


class ByLayer(NamedTuple):
    """One number a layer and recorded step, `values[layer][step]`; None where there is none."""

    run: str
    steps: list[int]
    layers: list[str]
    values: list[list[float | None]]


def by_layer(run: str, records: Sequence[tuple[int, Mapping[str, float]]]) -> ByLayer:
    """Records of `(step, layer -> number)` as a table, layers in the order in which they first appear."""
    layers = list(dict.fromkeys(layer for _, numbers in records for layer in numbers))
    values = [[numbers.get(layer) for _, numbers in records] for layer in layers]
    return ByLayer(run, [step for step, _ in records], layers, values)
