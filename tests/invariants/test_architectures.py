"""Every published recipe trains every architecture on padded sentences, and moves what it may and nothing else."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from architectures import ARCHITECTURES, PaddedEosData, t5_encoder
from rosewood.models.parameters import candidate_names
from rosewood.recipe import load_recipe, recipe_names
from tiny import Recording, arguments, differing, weights

Build = Callable[[], nn.Module]
# Inside the blocks, but no part of a classification without token types.
UNUSED = {"xlnet": {f"transformer.layer.{layer}.rel_attn.seg_embed" for layer in (0, 1)}}


def pairs() -> Iterator[Any]:
    """All of them; slow are the recipes all of whose components others have already brought."""
    known: set[tuple[str, str]] = set()
    for recipe in recipe_names():
        stages = load_recipe(recipe).all_stages()
        brought = {(type(part).__mro__[1].__name__, part.name) for stage in stages for part in stage.components()}
        marks = [pytest.mark.slow] if brought <= known else []
        known |= brought
        parts = [*(part for stage in stages for part in stage.components()), *load_recipe(recipe).perturbations()]
        one_label_a_text = any(part.name in ("informative", "substitution", "typing", "masking") for part in parts)
        builds = [build for build in ARCHITECTURES if not (one_label_a_text and build is t5_encoder)]
        yield from (pytest.param(build, recipe, marks=marks) for build in builds)


class Watching(Recording):
    """A Recording that remembers the weights before training and after every step."""

    def create_optimizer(self, *args: Any, **kwargs: Any) -> torch.optim.Optimizer:
        self.seen = [weights(self.model)]  # modules that are trained beside the model are there by now
        return super().create_optimizer(*args, **kwargs)

    def _remember(self, optimizer: torch.optim.Optimizer, *args: Any) -> None:
        super()._remember(optimizer, *args)
        self.seen.append(weights(self.model))


def trained(build: Build, recipe: str, directory: Path) -> Watching:
    torch.manual_seed(0)
    model = build()
    data = PaddedEosData(model, per_token=build.__name__ == "t5_encoder")
    args = arguments(directory, max_steps=2, logging_steps=1)
    trainer = Watching(model=model, args=args, train_dataset=data, recipe=recipe)
    trainer.train()
    return trainer


def pushed(trainer: Watching) -> set[str]:
    """Parameters whose average gradient is not zero, as it is for a key's bias or a position that never occurs."""
    state, named = trainer.optimizer.state, trainer.model.named_parameters()
    return {name for name, p in named if p in state and state[p]["exp_avg"].any()}


def head(model: Any) -> set[str]:
    inside = {id(p) for p in model.base_model.parameters()}
    return {name for name, p in model.named_parameters() if id(p) not in inside}


@pytest.mark.parametrize(("build", "recipe"), pairs(), ids=lambda value: getattr(value, "__name__", value))
def test_every_recipe_on_every_architecture(build: Build, recipe: str, tmp_path: Path) -> None:
    trainer = trained(build, recipe, tmp_path)
    assert any((batch["attention_mask"] == 0).any() for _, batch in trainer.micro_batches)
    losses = [record["loss"] for record in trainer.state.log_history if "loss" in record]
    assert len(losses) == 2
    assert all(0 < loss < 100 for loss in losses)
    before, between, after = trainer.seen
    assert all(torch.isfinite(weight).all() for weight in after.values())

    first, second = set(differing(before, between)), set(differing(between, after))
    masked_first, masked_second = trainer.masks
    assert not [name for name in first if masked_first.get(name) == 0], "frozen, and yet it moved"
    assert not [name for name in second if masked_second.get(name) == 0], "frozen, and yet it moved"
    assert {name for name in pushed(trainer) if masked_second.get(name) != 0} <= second
    assert second & head(trainer.model)

    candidates = set(candidate_names(trainer.model)) - UNUSED.get(build.__name__, set())
    selections = {stage.selection.name for stage in load_recipe(recipe).all_stages()}
    if "rose" in selections:
        assert candidates <= set(masked_second)
        assert 0 < sum(masked_second.values()) < len(masked_second)
    if "linear_probe" in selections:
        assert first <= head(trainer.model)
    if "everything" in selections:
        # Mixout may put all of a small vector back.
        assert {name for name in candidates if after[name].dim() > 1} <= second
