"""Drift: how far training has moved the encoder from its pre-trained weights (RIFT, Figure 2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from math import sqrt
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from rosewood.anchors.l2_sp import squared_product_norm
from rosewood.dynamics.record import ByLayer, Seen, Size, Watch, by_layer, layer_table, layers_of, read_seen
from rosewood.models.adapters import change_problems, encoder, low_rank_changes
from rosewood.recipe import Recipe
from rosewood.results.grid import Grid
from rosewood.tensors.shards import divided, stacked_norms


class SeenDrift(Seen):
    """|theta - theta0| / |theta0| after a step, of the whole encoder and of each of its layers."""

    watch = "drift"

    encoder: Size
    layers: dict[str, Size]


class DriftWatch(Watch):
    """Records |theta - theta0| / |theta0| of the whole encoder and of each of its layers (RIFT, Figure 2).

    The encoder is everything below the head, pooler included; the head has no pre-trained value. Weights that are
    frozen count in |theta0|. A LoRA adapter takes a weight from W0 to W0 + s B A, so its distance is |s B A|.

    theta0 are the weights that the trainer was given: to resume, give it the pre-trained model again.
    """

    name, seen = SeenDrift.watch, SeenDrift
    needs_pretrained = True

    def problems(self, recipe: Recipe, model: nn.Module) -> list[str]:
        quantised = [name for name, p in model.named_parameters() if not p.is_floating_point()]
        if quantised:
            return [f"watch drift divides by the norm of the weights, and {quantised[0]} is quantised: leave it out"]
        return change_problems(model, "watch drift")

    def start(self, model: nn.Module, total_steps: int, seed: int, pretrained: Mapping[str, Tensor]) -> None:
        super().start(model, total_steps, seed, pretrained)
        self._pretrained = pretrained
        self._layers = {name: layer for name, (layer, _) in layers_of(model).items()}
        below = encoder(model)
        inside = {id(parameter) for parameter in (model if below is None else below).parameters()}
        self._changes = [change for change in low_rank_changes(model) if change.base in self._layers]
        left_out = {name for change in self._changes for name in change.factors}
        self._names = [
            name
            for name, parameter in model.named_parameters()
            # PEFT keeps the original of a module that it trains as a whole.
            if id(parameter) in inside and name not in left_out and ".original_module." not in name
        ]

    @torch.no_grad()
    def stepped(self, step: int) -> None:
        named = dict(self._model.named_parameters())
        moved = [name for name in self._names if name in self._pretrained]
        squares = [_distance(named[name], self._origins[name]).square() for name in moved]
        squares += [c.scaling**2 * squared_product_norm(named[c.up], named[c.down]) for c in self._changes]
        distances = self._by_layer([*moved, *(change.base for change in self._changes)], squares)
        sizes = self._sizes
        self.records.record(
            step,
            {
                "encoder": sqrt(sum(distances.values()) / sum(sizes.values())),
                "layers": {layer: sqrt(distances.get(layer, 0.0) / size) for layer, size in sizes.items() if size},
            },
        )

    @cached_property
    def _origins(self) -> dict[str, Tensor]:
        """theta0 by name, divided as the weights are; what never was trainable is where it was."""
        named = {name: p.detach() for name, p in self._model.named_parameters() if name in set(self._names)}
        return {name: divided(self._pretrained.get(name, p), p) for name, p in named.items()}

    @cached_property
    def _sizes(self) -> dict[str, float]:
        """|theta0|^2 of each layer."""
        return self._by_layer(self._names, [stacked_norms([self._origins[name]])[0].square() for name in self._names])

    def _by_layer(self, names: list[str], squares: list[Tensor]) -> dict[str, float]:
        """Sums of squares, by layer, in the order of the model; one transfer from the device."""
        found: dict[str, float] = {}
        numbers = torch.stack(squares).tolist() if squares else []
        for name, number in zip(names, numbers, strict=True):
            layer = self._layers[name]
            found[layer] = found.get(layer, 0.0) + number
        return found


def _distance(one: Tensor, other: Tensor) -> Tensor:
    """|one - other|, one tensor at a time: all differences at once would take as much memory as the model."""
    wide = torch.promote_types(one.dtype, torch.float32)
    difference = one.to(wide) - other.to(wide)
    return stacked_norms([difference])[0]


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


def drift_table(found: Sequence[Drift]) -> Grid:
    """The whole encoder and each layer, after the last recorded step."""
    steps = ", ".join(f"{each.run} after {each.steps[-1]} steps" for each in found)
    caption = f"Relative distance to the pre-trained weights; {steps}."
    return layer_table("Drift", [(each.run, each.last()) for each in found], "{:.4f}", caption)
