"""Recipes with stages: the switch, the fresh optimiser, the schedule of each stage, resuming inside."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import TrainerCallback

from rosewood.errors import RecipeError
from rosewood.recipe import Recipe, build_recipe
from rosewood.training.trainer import RobustTrainer
from tiny import Recording, TinyData, arguments, differing, tiny_bert, trained, weights

ROSE = {"name": "rose", "order": "second", "keep_quantile": 0.3}


def two_stages(first: float = 0.5, **second: Any) -> Recipe:
    spec = {
        "name": "two",
        "stages": [
            {"share": first, "selection": "everything"},
            {"share": 1 - first, "selection": ROSE | second},
        ],
    }
    return build_recipe(spec)


class Watch(TrainerCallback):
    """Optimiser clock, learning rate and dropout at every step."""

    def __init__(self) -> None:
        self.clock: list[int] = []
        self.rates: list[float] = []
        self.dropout: list[float] = []

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.rates.append(kwargs["optimizer"].param_groups[0]["lr"])
        self.dropout.append(next(m.p for m in kwargs["model"].modules() if isinstance(m, nn.Dropout)))

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        model, optimizer = kwargs["model"], kwargs["optimizer"]
        self.clock.append(int(optimizer.state[model.classifier.weight]["step"]))


def watched(recipe: Recipe, directory: Path, **settings: Any) -> tuple[Recording, Watch]:
    watch = Watch()
    return trained(recipe, directory, callbacks=[watch], **settings), watch


def test_the_switch_the_clock_and_the_schedule(tmp_path: Path) -> None:
    trainer, watch = watched(two_stages(), tmp_path, max_steps=10, learning_rate=1e-3)
    assert [bool(masks) for masks in trainer.masks] == [False] * 5 + [True] * 5
    assert all(mask == 1 for mask in trainer.masks[5].values()), "a fresh optimiser has no momentum to compare with"
    assert any(mask == 0 for mask in trainer.masks[6].values())
    assert watch.clock == [1, 2, 3, 4, 5] * 2
    assert watch.rates == pytest.approx([1e-3, 8e-4, 6e-4, 4e-4, 2e-4] * 2)


def test_each_stage_has_its_own_warm_up(tmp_path: Path) -> None:
    _, watch = watched(two_stages(0.4), tmp_path, max_steps=10, warmup_steps=2)
    assert watch.rates == pytest.approx([0, 5e-4, 1e-3, 5e-4, 0, 5e-4, 1e-3, 7.5e-4, 5e-4, 2.5e-4])


def test_the_mask_warm_up_counts_within_the_stage(tmp_path: Path) -> None:
    trainer, _ = watched(two_stages(warmup_steps=2), tmp_path, max_steps=10)
    assert [bool(masks) for masks in trainer.masks] == [False] * 7 + [True] * 3


def test_accumulation_inside_a_stage(tmp_path: Path) -> None:
    trainer, watch = watched(two_stages(), tmp_path, max_steps=6, gradient_accumulation_steps=2)
    assert watch.clock == [1, 2, 3] * 2
    assert [bool(masks) for masks in trainer.masks] == [False] * 3 + [True] * 3


@pytest.mark.parametrize("checkpoint", [5, 7])
def test_resuming_at_and_inside_the_second_stage(checkpoint: int, tmp_path: Path) -> None:
    recipe = two_stages()
    whole = trained(recipe, tmp_path, save_strategy="steps", save_steps=checkpoint)
    resumed = trained(recipe, tmp_path, model=tiny_bert(seed=5), resume=str(tmp_path / f"checkpoint-{checkpoint}"))
    assert not list(differing(weights(whole.model), weights(resumed.model)))
    assert whole.masks[checkpoint:] == resumed.masks


@pytest.mark.parametrize(
    "selections", [("everything", "roast"), ("roast", "everything"), ("roast", "child_tuning"), ("roast", "roast")]
)
def test_a_checkpoint_between_two_stages_holds_nothing_for_the_second(
    selections: tuple[str, str], tmp_path: Path
) -> None:
    recipe = build_recipe({"name": "two", "stages": [{"share": 0.5, "selection": s} for s in selections]})
    whole = trained(recipe, tmp_path, save_strategy="steps", save_steps=5)
    resumed = trained(recipe, tmp_path, model=tiny_bert(seed=5), resume=str(tmp_path / "checkpoint-5"))
    assert not list(differing(weights(whole.model), weights(resumed.model)))


def test_equal_stages_are_two_runs_in_a_row(tmp_path: Path) -> None:
    """Two vanilla stages of five steps: the second starts where the first ends, with everything else new."""
    spec = {"stages": [{"share": 0.5}, {"share": 0.5}]}
    data = TinyData(size=40)
    staged = trained(build_recipe(spec), tmp_path, data=data, max_steps=10)
    model = tiny_bert().train()
    args = arguments(tmp_path)
    for batches in (staged.micro_batches[:5], staged.micro_batches[5:]):
        groups = [
            {"params": [p for n, p in model.named_parameters() if "bias" not in n and "LayerNorm" not in n]},
            {"params": [p for n, p in model.named_parameters() if "bias" in n or "LayerNorm" in n], "weight_decay": 0},
        ]
        optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.98), eps=1e-6, weight_decay=args.weight_decay)
        for step, (state, batch) in enumerate(batches):
            torch.set_rng_state(state)
            model(**batch).loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for group in optimizer.param_groups:
                group["lr"] = 1e-3 * (5 - step) / 5
            optimizer.step()
            model.zero_grad()
    expected = weights(model)
    for name, weight in weights(staged.model).items():
        torch.testing.assert_close(weight, expected[name], rtol=0, atol=1e-12)


def test_the_dropout_of_a_stage_does_not_reach_back(tmp_path: Path) -> None:
    _, watch = watched(two_stages(order="first", dropout=0.4), tmp_path, max_steps=4)
    assert watch.dropout == [0.1, 0.1, 0.4, 0.4]


def test_fewer_steps_than_stages_still_train(tmp_path: Path) -> None:
    trainer, _ = watched(two_stages(), tmp_path, max_steps=1)
    assert trainer.state.global_step == 1


def test_shares_must_add_up() -> None:
    with pytest.raises(RecipeError, match=r"shares must add up to 1, they add up to 0\.7"):
        build_recipe({"name": "x", "stages": [{"share": 0.5}, {"share": 0.2}]})


def test_a_recipe_with_stages_has_the_parts_of_the_last() -> None:
    recipe = two_stages()
    assert recipe.selection == recipe.stages[-1].selection


def test_a_stage_that_needs_dropout_is_refused_on_a_model_without(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="has no dropout"):
        RobustTrainer(
            model=tiny_bert(dropout=0.0), args=arguments(tmp_path), recipe=two_stages(order="first", dropout=None)
        )
