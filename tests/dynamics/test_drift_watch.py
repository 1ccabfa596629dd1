"""The recorded drift is |theta - theta0| / |theta0|, computed here by hand in float64."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from rosewood.dynamics.drift import DriftWatch, SeenDrift
from rosewood.dynamics.record import read_seen
from tiny import Recording as Trainer
from tiny import TinyData, arguments, tiny_bert
from tiny_lora import tiny_lora


def drift_after_three_steps(model: nn.Module, folder: Path, recipe: str = "vanilla") -> SeenDrift:
    Trainer(
        model=model,
        args=arguments(folder, max_steps=3),
        train_dataset=TinyData(),
        recipe=recipe,
        watches=[DriftWatch(folder / "dynamics", every=3)],
    ).train()
    return read_seen(folder, SeenDrift)[-1]


def relative(start: list[Tensor], end: list[Tensor]) -> float:
    before, after = (torch.cat([tensor.flatten().double() for tensor in some]) for some in (start, end))
    return float((after - before).norm() / before.norm())


def encoder_weights(model: nn.Module, part: str = "") -> list[Tensor]:
    return [p.detach() for name, p in model.named_parameters() if name.startswith(f"bert.{part}")]


@pytest.mark.parametrize("recipe", ["vanilla", "rose-ensemble", "adv-mixout"])
def test_drift_of_encoder_and_layers(recipe: str, tmp_path: Path) -> None:
    model = tiny_bert(dtype=torch.float32)
    start = copy.deepcopy(model)
    seen = drift_after_three_steps(model, tmp_path, recipe)
    assert seen.encoder == pytest.approx(relative(encoder_weights(start), encoder_weights(model)), rel=1e-6)
    places = {
        "embeddings": "embeddings",
        "layer 0": "encoder.layer.0",
        "layer 1": "encoder.layer.1",
        "pooler": "pooler",
    }
    assert list(seen.layers) == list(places)
    for layer, place in places.items():
        expected = relative(encoder_weights(start, place), encoder_weights(model, place))
        assert seen.layers[layer] == pytest.approx(expected, rel=1e-6)
        assert expected > 0


def test_frozen_weights_count_in_the_norm(tmp_path: Path) -> None:
    model = tiny_bert()
    model.bert.embeddings.requires_grad_(False)
    start = copy.deepcopy(model)
    seen = drift_after_three_steps(model, tmp_path)
    assert seen.layers["embeddings"] == 0
    assert seen.encoder == pytest.approx(relative(encoder_weights(start), encoder_weights(model)), rel=1e-6)


def test_drift_of_lora_is_that_of_the_merged_weights(tmp_path: Path) -> None:
    model = tiny_lora()
    start = copy.deepcopy(model).merge_and_unload()
    seen = drift_after_three_steps(model, tmp_path)
    end = model.merge_and_unload()
    assert seen.encoder == pytest.approx(relative(encoder_weights(start), encoder_weights(end)), rel=1e-6)
    expected = relative(encoder_weights(start, "encoder.layer.1"), encoder_weights(end, "encoder.layer.1"))
    assert seen.layers["layer 1"] == pytest.approx(expected, rel=1e-6)
    assert seen.encoder > 0


def test_bfloat16_weights_are_compared_in_float32(tmp_path: Path) -> None:
    model = tiny_bert(dtype=torch.bfloat16)
    start = copy.deepcopy(model)
    seen = drift_after_three_steps(model, tmp_path)
    assert seen.encoder == pytest.approx(relative(encoder_weights(start), encoder_weights(model)), rel=1e-5)
