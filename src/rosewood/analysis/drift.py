"""How far a run went from its pre-trained weights, step by step (RIFT, Figure 2)."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from rosewood.analysis.by_layer import ByLayer, by_layer
from rosewood.watched import SeenDrift, read_seen


class Drift(NamedTuple):
    """|theta - theta0| / |theta0| over steps, of the whole encoder and of its layers."""

    run: str
    steps: list[int]
    encoder: list[float]
    layers: ByLayer

    def last(self) -> dict[str, float]:
        """After the last recorded step: the whole encoder, then its layers."""
        rows = zip(self.layers.layers, self.layers.values, strict=True)
        ends = {layer: row[-1] for layer, row in rows}
        return {"encoder": self.encoder[-1]} | {layer: end for layer, end in ends.items() if end is not None}


def read_drift(run: str | Path) -> Drift:
    """The drift that a run recorded."""
    records = read_seen(run, SeenDrift)
    layers = by_layer(Path(run).name, [(seen.step, seen.layers) for seen in records])
    return Drift(layers.run, layers.steps, [seen.encoder for seen in records], layers)
