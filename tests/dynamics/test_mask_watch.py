"""The recorded masks are those that the optimiser got: what was not kept did not move."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import TrainerCallback

from rosewood.dynamics.masks import MaskWatch, SeenMasks
from rosewood.dynamics.record import read_seen
from rosewood.recipe import load_recipe
from tiny import Recording, TinyData, arguments, tiny_bert, weights

STEPS = 6
PREFIX = "bert.encoder.layer."


class Weights(TrainerCallback):
    """Keeps the weights after every step."""

    def __init__(self) -> None:
        self.seen: list[dict[str, torch.Tensor]] = []

    def on_train_begin(self, *args: Any, model: Any = None, **_: Any) -> None:
        self.seen.append(weights(model))

    def on_step_end(self, *args: Any, model: Any = None, **_: Any) -> None:
        self.seen.append(weights(model))


def watched(recipe: Any, folder: Path, **settings: Any) -> tuple[list[SeenMasks], Weights, Recording]:
    after = Weights()
    trainer = Recording(
        model=tiny_bert(),
        args=arguments(folder, max_steps=STEPS, **settings),
        train_dataset=TinyData(size=16),
        recipe=recipe,
        callbacks=[after],
        watches=[MaskWatch(folder / "dynamics", every=1)],
    )
    trainer.train()
    return read_seen(folder, SeenMasks), after, trainer


def flat(by_layer: dict[str, dict[str, float]]) -> dict[str, float]:
    return {
        f"{PREFIX}{layer.split()[1]}.{name}": value
        for layer, inner in by_layer.items()
        for name, value in inner.items()
    }


@pytest.mark.parametrize("recipe", ["rose-first", "rose-second", "rose-ensemble"])
def test_what_rose_does_not_keep_does_not_move(recipe: str, tmp_path: Path) -> None:
    seen, after, trainer = watched(recipe, tmp_path)
    assert [record.step for record in seen] == list(range(1, STEPS + 1))
    frozen = 0
    for record, before, now, applied in zip(seen, after.seen, after.seen[1:], trainer.masks, strict=False):
        kept = flat(record.kept)
        assert kept == {name: float(value) for name, value in applied.items()}
        for name, share in kept.items():
            assert torch.equal(before[name], now[name]) == (share == 0)
            frozen += share == 0
    assert frozen > STEPS


def test_element_masks_of_rose(tmp_path: Path) -> None:
    recipe = load_recipe("rose-first", {"selection.level": "element"})
    seen, after, _ = watched(recipe, tmp_path, weight_decay=0.0)
    for record, before, now in zip(seen, after.seen, after.seen[1:], strict=False):
        assert record.first_risk is None
        for name, share in flat(record.kept).items():
            moved = (before[name] != now[name]).double().mean()
            assert moved == pytest.approx(share, abs=0.02), "a weight may be kept and have a gradient of 0"


@pytest.mark.parametrize("recipe", ["roast", "child-tuning-d"])
def test_shares_of_element_masks_are_those_of_the_first_update(recipe: str, tmp_path: Path) -> None:
    # Without momentum yet and without decay, exactly what is kept and has a gradient moves.
    seen, after, _ = watched(recipe, tmp_path, weight_decay=0.0)
    whole = 0.0
    for name, share in flat(seen[0].kept).items():
        moved = (after.seen[0][name] != after.seen[1][name]).double().mean()
        if "key.bias" not in name:  # softmax does not feel it, so it has no gradient
            assert moved == pytest.approx(share, abs=0.01), name
        whole += share * after.seen[0][name].numel()
    total = sum(tensor.numel() for name, tensor in after.seen[0].items() if name.startswith(PREFIX))
    expected = {"roast": 0.1, "child-tuning-d": 0.3}[recipe]
    assert whole / total == pytest.approx(expected, abs=0.05)


def test_child_tuning_f_keeps_its_share_of_every_layer_and_of_the_head(tmp_path: Path) -> None:
    seen, _, _ = watched("child-tuning-f", tmp_path)
    assert list(seen[0].kept) == ["embeddings", "layer 0", "layer 1", "pooler", "classifier"]
    share = load_recipe("child-tuning-f").selection.keep_share  # type: ignore[attr-defined]
    assert seen[0].kept["embeddings"]["word_embeddings.weight"] == pytest.approx(share, abs=0.05)
    assert seen[0].kept != seen[1].kept


def test_risks_are_recorded_where_they_are_read(tmp_path: Path) -> None:
    recipe = load_recipe("rose-ensemble", {"selection.probe_every": 2, "selection.warmup_steps": 1})
    seen, _, _ = watched(recipe, tmp_path)
    assert [record.step for record in seen] == [2, 3, 4, 5, 6], "everything moves in the first step"
    assert [record.first_risk is not None for record in seen] == [True, False, True, False, True]
    assert all(record.second_ratio is not None for record in seen)
    for record in seen:
        assert record.second_ratio is not None
        assert {layer: list(inner) for layer, inner in record.second_ratio.items()} == {
            layer: list(inner) for layer, inner in record.kept.items()
        }


def test_the_second_order_mask_follows_from_the_recorded_ratio(tmp_path: Path) -> None:
    seen, _, _ = watched(load_recipe("rose-second", {"selection.keep_quantile": 0.5}), tmp_path)
    for record in seen[1:]:
        assert record.second_ratio is not None
        risks = {name: abs(ratio - 1) for name, ratio in flat(record.second_ratio).items()}
        kept = [name for name, share in flat(record.kept).items() if share]
        assert sorted(kept) == sorted(sorted(risks, key=risks.__getitem__)[: len(kept)])
        assert len(kept) == (len(risks) - 1) // 2 + 1
