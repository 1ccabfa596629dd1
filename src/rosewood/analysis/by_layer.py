"""Numbers of layers over steps, as heat maps show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


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
