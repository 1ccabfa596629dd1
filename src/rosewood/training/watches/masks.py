"""Which share of each tensor the selection lets move, and the risks by which it chooses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import inf

import torch
from torch import Tensor, nn

from rosewood.protocol import Masks, Risks
from rosewood.recipe import Recipe
from rosewood.tensors.shards import sums
from rosewood.training.watch import Watch
from rosewood.training.watches.layers import layers_of


class MaskWatch(Watch):
    """Records the mean of each tensor's mask; a factor above 1, the 1/p of RoAST and Child-Tuning F, counts as 1.

    ROSE's masks are 0, 1 or, in the ensemble, gamma between them. Its risks are recorded where it reads them for whole
    tensors. A step in which everything moves (`warmup_steps`) leaves no record.
    """

    name = "masks"

    def problems(self, recipe: Recipe, model: nn.Module) -> list[str]:
        if any(stage.selection.makes_masks for stage in recipe.all_stages()):
            return []
        return [
            f"watch masks records what a selection lets through, and recipe {recipe.name} masks nothing: leave it out, "
            "or choose a recipe with the selection rose, roast or child_tuning"
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
