"""Combining is a feature: every pair of components of different axes trains and matters, or is refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch

from rosewood.config.registry import component_names
from rosewood.errors import RecipeError
from rosewood.recipe import build_recipe
from tiny import TinyData, differing, tiny_bert, trained, weights

AXES = ("objective", "perturbation", "selection", "anchor")
NEUTRAL = {"objective": "cross_entropy", "selection": "everything"}

# Settings under which a component does something in three steps of a tiny model.
SETTINGS: dict[str, dict[str, Any]] = {
    "child_tuning": {"variant": "F"},
    "consistency": {"divergence_weight": 1.0},
    "rose": {"order": "ensemble"},
    "flooding": {"level": 0.9},  # above the loss of guessing
    "masking": {"share": 0.9},
    "substitution": {"share": 0.9},
    "typing": {"share": 1.0},
    "l2_sp": {"weight": 0.1},
    "informative": {"weight": 1.0, "own_pass": False},
}

# (first, second): words that the refusal must contain beside both names.
REFUSED: dict[tuple[str, str], str] = {
    ("adversarial_path", "dropout"): "needs perturbation embedding_ascent",
    ("adversarial_path", "hidden_cut"): "needs perturbation embedding_ascent",
    ("adversarial_path", "masking"): "needs perturbation embedding_ascent",
    ("adversarial_path", "mixture"): "needs perturbation embedding_ascent",
    ("adversarial_path", "noise"): "needs perturbation embedding_ascent",
    ("adversarial_path", "substitution"): "needs perturbation embedding_ascent",
    ("adversarial_path", "synonym_hull"): "needs perturbation embedding_ascent",
    ("adversarial_path", "token_drop"): "needs perturbation embedding_ascent",
    ("adversarial_path", "typing"): "needs perturbation embedding_ascent",
    ("adversarial_path", "weight_ascent"): "needs perturbation embedding_ascent",
    ("adversarial_path", "rose"): "looks at a pass over the clean input",
    ("adversarial_path", "bregman"): "looks at a pass over the clean input",
    ("adversarial_path", "informative"): "looks at a pass over the clean input",
    ("perturbed", "dropout"): "choose the objective cross_entropy",
    ("perturbed", "weight_ascent"): "choose the objective consistency",
    ("perturbed", "rose"): "looks at a pass over the clean input",
    ("perturbed", "bregman"): "looks at a pass over the clean input",
    ("perturbed", "informative"): "looks at a pass over the clean input",
    ("linear_probe", "informative"): "acts on the features of the encoder",
    ("linear_probe", "l2_sp"): "acts on the weights of the encoder",
    ("linear_probe", "mixout"): "acts on the weights of the encoder",
}


REFUSED |= {
    (objective, name): "never looks at a perturbed input"
    for objective in ("flooding", "label_smoothing", "temperature")
    for name in component_names("perturbation")
}


def pairs() -> list[tuple[str, str, str, str]]:
    """(axis, component, axis, component) for every two components of different axes, neutral ones apart."""
    names = {axis: [name for name in component_names(axis) if name != NEUTRAL.get(axis)] for axis in AXES}
    return [
        (one, first, other, second)
        for one, other in combinations(AXES, 2)
        for first in names[one]
        for second in names[other]
    ]


def recipe_of(**parts: str) -> Any:
    """A recipe with these components; a perturbation gets an objective that looks at it, an objective its view."""
    if "perturbation" in parts:
        parts.setdefault("objective", "consistency")
    elif parts.get("objective") in ("consistency", "perturbed"):
        parts["perturbation"] = "noise"
    elif parts.get("objective") == "adversarial_path":
        parts["perturbation"] = "embedding_ascent"
    spec: dict[str, Any] = {axis: _with_settings(name) for axis, name in parts.items() if axis != "anchor"}
    if "anchor" in parts:
        spec["anchors"] = [_with_settings(parts["anchor"])]
    return build_recipe({"name": "+".join(parts.values()), **spec})


def _with_settings(name: str) -> dict[str, Any]:
    return {"name": name} | SETTINGS.get(name, {})


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, torch.Tensor]]:
    """The weights after training with one component or none, each computed once for all of its pairs."""
    return cache(lambda **parts: outcome(tmp_path_factory.mktemp("alone"), **parts))


def outcome(directory: Path, **parts: str) -> dict[str, torch.Tensor]:
    model = tiny_bert()
    trained(recipe_of(**parts), directory, model=model, data=TinyData(16), max_steps=3)
    return weights(model)


@pytest.mark.parametrize(("one", "first", "other", "second"), pairs(), ids=lambda value: value)
def test_every_pair_trains_and_matters_or_is_refused(
    one: str, first: str, other: str, second: str, tmp_path: Path, alone: Callable[..., dict[str, torch.Tensor]]
) -> None:
    if (first, second) in REFUSED:
        with pytest.raises(RecipeError) as refusal:
            outcome(tmp_path, **{one: first, other: second})
        sentence = str(refusal.value)
        assert first in sentence
        assert second in sentence
        assert REFUSED[first, second] in sentence
        return
    both = outcome(tmp_path, **{one: first, other: second})
    assert all(torch.isfinite(tensor).all() for tensor in both.values())
    # An objective and a perturbation need each other: without one of them, neither is left.
    needed = (one, other) == ("objective", "perturbation")
    for kept, name, gone in ((one, first, second), (other, second, first)):
        without = alone(**({} if needed else {kept: name}))
        assert any(differing(both, without)), f"{gone} does nothing beside {name}"


@pytest.mark.parametrize("perturbation", component_names("perturbation"))
def test_plain_cross_entropy_refuses_every_perturbation(perturbation: str, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=f"cross_entropy never looks at a perturbed input, .* {perturbation} would"):
        outcome(tmp_path, objective="cross_entropy", perturbation=perturbation)


def test_rose_first_refuses_a_model_without_dropout(tmp_path: Path) -> None:
    recipe = build_recipe({"selection": {"name": "rose", "order": "first"}})
    with pytest.raises(
        RecipeError, match=r"selection rose \(order=first\) .* BertForSequenceClassification has no dropout"
    ):
        trained(recipe, tmp_path, model=tiny_bert(dropout=0.0))
