"""Weights that rise while training goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from keyed_draws import keyed_draws
from keyed_dropout import keyed_dropout
from rosewood.errors import RecipeError
from rosewood.protocol import Progress, Ramp, weight_at
from rosewood.recipe import Recipe, build_recipe, load_recipe
from tiny import TinyData, differing, tiny_bert, trained, weights


def run(recipe: Recipe, directory: Path, **settings: Any) -> dict[str, torch.Tensor]:
    model = tiny_bert(initializer_range=0.2)
    with keyed_dropout(model), keyed_draws():
        trained(recipe, directory, model=model, data=TinyData(16), **settings)
    return weights(model)


def test_a_weight_rises_in_a_line_and_stays() -> None:
    found = [weight_at(Ramp(10.0, 0.5), Progress(step, 8)) for step in range(8)]
    assert found == [2.5, 5.0, 7.5, 10.0, 10.0, 10.0, 10.0, 10.0]
    assert weight_at(3.0, Progress(0, 8)) == 3.0


@pytest.mark.parametrize(
    ("recipe", "path"),
    [
        ("r-drop", "objective.divergence_weight"),
        ("r-drop", "objective.perturbed_weight"),
        ("advweight", "objective.divergence_weight"),
        ("wconsol", "anchors.0.weight"),
        ("smart", "anchors.0.weight"),
        ("informative", "anchors.0.weight"),
    ],
)
def test_every_step_has_the_weight_of_its_place(recipe: str, path: str, tmp_path: Path) -> None:
    """One step of n, at the end of which a ramp over everything has its whole weight; then a ramp that is not over."""
    plain = run(load_recipe(recipe, {path: 0.8}), tmp_path, max_steps=1)
    assert not list(differing(plain, run(load_recipe(recipe, {path: {"to": 0.8, "over": 1.0}}), tmp_path, max_steps=1)))
    rising = run(
        load_recipe(recipe, {path: {"to": 0.8, "over": 1.0}}), tmp_path, max_steps=3
    )  # no distance in the first
    assert list(differing(rising, run(load_recipe(recipe, {path: 0.8}), tmp_path, max_steps=3)))


def test_a_ramp_counts_the_steps_of_its_stage(tmp_path: Path) -> None:
    ramped: dict[str, Any] = {"objective": {"name": "consistency", "divergence_weight": {"to": 1.0, "over": 1.0}}}
    stage = {"share": 0.5, "perturbation": "dropout", **ramped}
    recipe = build_recipe({"name": "late", "stages": [{"share": 0.5}, stage]})
    history = tmp_path / "history.jsonl"
    trainer = trained(recipe, tmp_path, data=TinyData(16), max_steps=4, logging_steps=1, history_file=history)
    logs = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert "loss_dropout_kl" not in logs[1]
    for weight, entry in zip((0.5, 1.0), logs[2:], strict=True):
        assert entry["loss"] == pytest.approx(entry["loss_ce"] + weight * entry["loss_dropout_kl"], rel=1e-4)


def test_ramps_go_round_and_are_refused_in_words() -> None:
    recipe = load_recipe("adv-base:gentle")
    assert recipe.to_dict()["objective"]["divergence_weight"] == {"to": 1.0, "over": 0.5}
    assert build_recipe(recipe.to_dict()) == recipe
    assert "from 0 over the first 0.5 of the steps" in "\n".join(recipe.objective.explain(recipe.all_stages()[0]))
    with pytest.raises(RecipeError, match=r"divergence_weight: input should be greater than or equal to 0, got -1"):
        load_recipe("adv-base", {"objective.divergence_weight": {"to": -1}})
