"""Masks: which share of each tensor the selection lets move, and the risks by which it chooses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from pathlib import Path
from statistics import mean, median

import torch
from torch import Tensor, nn

from rosewood.dynamics.record import ByLayer, Seen, Size, Watch, by_layer, layer_table, layers_of, read_seen
from rosewood.protocol import Masks, Risks
from rosewood.recipe import Recipe
from rosewood.results.files import Share
from rosewood.results.grid import Grid
from rosewood.tensors.shards import sums

ByTensor = dict[str, dict[str, Size]]  # layer -> tensor -> number


class SeenMasks(Seen):
    """Which share of each tensor a step could move: the mean of its mask, where a factor above 1 counts as 1.

    ROSE's `first_risk` and `second_ratio`, (1 - beta1) |g| / |m|, are there in steps that read them.
    """

    watch = "masks"

    kept: dict[str, dict[str, Share]]  # layer -> tensor -> share
    first_risk: ByTensor | None = None
    second_ratio: ByTensor | None = None


class MaskWatch(Watch):
    """Records the mean of each tensor's mask; a factor above 1, the 1/p of RoAST and Child-Tuning F, counts as 1.

    ROSE's masks are 0, 1 or, in the ensemble, gamma between them. Its risks are recorded where it reads them for whole
    tensors. A step in which everything moves (`warmup_steps`) leaves no record.
    """

    name, seen = SeenMasks.watch, SeenMasks

    def problems(self, recipe: Recipe, model: nn.Module) -> list[str]:
        if any(stage.selection.makes_masks for stage in recipe.all_stages()):
            return []
        return [
            f"watch masks records what a selection allows to move, and recipe {recipe.name} masks nothing: leave it "
            "out, or choose a recipe with the selection rose, roast or child_tuning"
        ]

    def start(self, model: nn.Module, total_steps: int, seed: int, pretrained: Mapping[str, Tensor]) -> None:
        super().start(model, total_steps, seed, pretrained)
        self._layers = layers_of(model)

    def selected(self, step: int, masks: Masks | None, risks: Risks) -> None:
        if masks is None:
            return
        numbers = {
            kind: (names, values.nan_to_num(inf, posinf=inf).tolist()) for kind, (names, values) in risks.items()
        }
        read = {kind: self._by_layer(names, values) for kind, (names, values) in numbers.items()}
        self.records.record(step, {"kept": self._by_layer(masks.names, self._shares(masks).tolist())} | read)

    def _shares(self, masks: Masks) -> Tensor:
        if isinstance(masks.values, Tensor):
            return masks.values.clamp(max=1)
        named = dict(self._model.named_parameters())
        parameters = [named[name] for name in masks.names]
        kept = torch.stack([mask.clamp(max=1).sum(dtype=torch.float32) for mask in masks.values])
        return sums(kept, parameters) / kept.new_tensor([parameter.numel() for parameter in parameters])

    def _by_layer(self, names: Sequence[str], numbers: Iterable[float]) -> dict[str, dict[str, float]]:
        found: dict[str, dict[str, float]] = defaultdict(dict)
        for name, number in zip(names, numbers, strict=True):
            layer, tensor = self._layers[name]
            found[layer][tensor] = number
        return dict(found)


def kept_shares(run: str | Path) -> ByLayer:
    """The kept share of each layer: the mean over its tensors, large or small, as ROSE counts them."""
    records = read_seen(run, SeenMasks)
    return by_layer(
        Path(run).name,
        [(seen.step, {layer: mean(shares.values()) for layer, shares in seen.kept.items()}) for seen in records],
    )


def kept_by_tensor(run: str | Path) -> ByLayer:
    """The kept share of each kind of tensor, such as the query's weight: the mean over the layers that have one."""
    records = []
    for seen in read_seen(run, SeenMasks):
        found: dict[str, list[float]] = defaultdict(list)
        for shares in seen.kept.values():
            for tensor, share in shares.items():
                found[tensor].append(share)
        records.append((seen.step, {tensor: mean(shares) for tensor, shares in found.items()}))
    return by_layer(Path(run).name, records)


def second_order_ratios(run: str | Path) -> ByLayer | None:
    """The median over a layer's tensors of (1 - beta1) |g| / |m|; None if the run never read it.

    ROSE-Second keeps the tensors whose ratio is nearest to 1, where the gradient is 1 / (1 - beta1) = 10 times its
    running average m. After the first steps ratios are below 1, so these are the tensors with the largest |g| / |m|.
    """
    found = [(seen.step, seen.second_ratio) for seen in read_seen(run, SeenMasks) if seen.second_ratio is not None]
    if not found:
        return None
    return by_layer(
        Path(run).name,
        [(step, {layer: median(each.values()) for layer, each in ratios.items()}) for step, ratios in found],
    )


def mean_kept(shares: ByLayer) -> dict[str, float]:
    """The mean over the recorded steps of each layer, or kind of tensor."""
    rows = zip(shares.layers, shares.values, strict=True)
    return {layer: mean(value for value in row if value is not None) for layer, row in rows}


def kept_table(shares: Sequence[ByLayer], by: str, over: str) -> Grid:
    """A row for each layer, or whatever `by` says in words; `over` says what the mean is over besides steps."""
    columns = [(each.run, mean_kept(each)) for each in shares]
    return layer_table(f"Share that may move, by {by}", columns, "{:.1%}", f"Mean over recorded steps and {over}.")
