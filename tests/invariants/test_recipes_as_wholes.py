"""What must hold for every published recipe; a new YAML file is tested the day it appears."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from torch import Tensor

from every_recipe import every_recipe
from keyed_draws import keyed_draws
from keyed_dropout import keyed_dropout
from rosewood.recipe import Recipe, load_recipe, recipe_names
from tiny import Recording, TinyData, tiny_bert, trained, weights

# Recipes whose step depends on the micro-batch by design (see the recipe's deviations).
PER_MICRO_BATCH: set[str] = {
    "advweight",  # each micro-batch ascends by its own gradient
    "flooding",  # a loss is below the level in a micro-batch or is not
    "informative",  # examples are compared within their micro-batch
    "mixout",  # each micro-batch draws its own mask
    "adv-mixout",  # likewise
    *("rift", "rift-unconditional", "rose-ensemble+rift", "augment+rift"),  # as informative
}


# Settings under which a recipe does something in a few steps of a tiny model.
SETTINGS: dict[str, dict[str, Any]] = {"flooding": {"objective.level": 2.0}}  # as published, below any loss here


def keyed_run(recipe: Recipe, directory: Path, spread: float = 0.02, **settings: Any) -> Recording:
    model = tiny_bert(initializer_range=spread)
    with keyed_dropout(model), keyed_draws():
        return trained(recipe, directory, model=model, data=TinyData(size=20), **settings)


@cache
def vanilla(spread: float = 0.02, steps: int = 10) -> dict[str, Tensor]:
    """The weights after plain fine-tuning."""
    with TemporaryDirectory() as folder:
        return weights(keyed_run(load_recipe("vanilla"), Path(folder), spread, max_steps=steps).model)


@pytest.mark.parametrize("name", every_recipe(but=PER_MICRO_BATCH))
def test_batch_8_is_batch_2_with_4_accumulation_steps(name: str, tmp_path: Path) -> None:
    # 20 examples make two full steps and a shorter one an epoch.
    recipe = load_recipe(name)
    whole = keyed_run(recipe, tmp_path, per_device_train_batch_size=8, max_steps=6)
    parts = keyed_run(recipe, tmp_path, per_device_train_batch_size=2, gradient_accumulation_steps=4, max_steps=6)
    assert (len(whole.micro_batches), len(parts.micro_batches)) == (6, 20)
    assert whole.masks == parts.masks
    expected = weights(whole.model)
    for parameter, weight in weights(parts.model).items():
        torch.testing.assert_close(weight, expected[parameter], rtol=0, atol=1e-9)
    for a, b in zip(whole.state.log_history, parts.state.log_history, strict=True):
        assert {k: v for k, v in a.items() if "loss" in k} == pytest.approx(
            {k: v for k, v in b.items() if "loss" in k}, rel=1e-4
        )


@pytest.mark.parametrize("name", [name for name in recipe_names() if name != "vanilla"])
def test_every_recipe_can_be_turned_into_vanilla(name: str, tmp_path: Path) -> None:
    recipe = load_recipe(name)
    assert recipe.vanilla_when, f"{name}.yaml must say under which overrides it is plain fine-tuning"
    turned = keyed_run(load_recipe(name, recipe.vanilla_when), tmp_path)
    expected = vanilla()
    for parameter, weight in weights(turned.model).items():
        torch.testing.assert_close(weight, expected[parameter], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", [name for name in recipe_names() if name != "vanilla"])
def test_every_recipe_differs_from_vanilla_as_published(name: str, tmp_path: Path) -> None:
    # Weights that are not tiny: divergences of nearly equal predictions are of second order.
    recipe = load_recipe(name, SETTINGS.get(name))
    plain, other = vanilla(0.2, 3), weights(keyed_run(recipe, tmp_path, 0.2, max_steps=3).model)
    assert any((plain[parameter] - other[parameter]).abs().max() > 1e-6 for parameter in plain)
