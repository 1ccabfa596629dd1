"""RoseAdamW in a plain loop is the recipe rose-second in the trainer, bit for bit, and an optimiser like any other."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import Trainer, get_scheduler

from architectures import ARCHITECTURES, bert
from rosewood.errors import RecipeError
from rosewood.models.parameters import candidate_names, candidates_by_name
from rosewood.optim import RoseAdamW
from rosewood.recipe import load_recipe
from tiny import Recording, TinyData, arguments, differing, tiny_bert, weights

STEPS = 20
CLIP = 0.5  # below the norm of most gradients of the tiny model


def recorded(directory: Path, overrides: dict[str, Any]) -> Recording:
    """What the trainer does with the recipe, and the batches and random states that it had."""
    trainer = Recording(
        model=tiny_bert(dtype=torch.float32),
        args=arguments(directory, max_steps=STEPS, max_grad_norm=CLIP, warmup_steps=3),
        train_dataset=TinyData(size=80),
        recipe=load_recipe("rose-second", overrides),
    )
    trainer.train()
    return trainer


class Loop:
    """A plain loop over the batches of a trainer."""

    def __init__(self, trainer: Recording, **settings: Any) -> None:
        self.batches = trainer.micro_batches
        self.model = tiny_bert(dtype=torch.float32).train()
        self.optimizer = RoseAdamW(self.model.named_parameters(), lr=1e-3, **settings)
        self.scheduler = get_scheduler("linear", self.optimizer, 3, STEPS)
        self.masks: list[dict[str, Any]] = []

    def run(self, start: int, end: int) -> None:
        for state, batch in self.batches[start:end]:
            torch.set_rng_state(state)
            self.model(**batch).loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
            self.optimizer.step()
            self.scheduler.step()
            self.optimizer.zero_grad()
            found = self.optimizer.multipliers
            self.masks.append({n: found[p] for n, p in self.model.named_parameters() if p in found})


CASES = {
    "default": ({}, {}),
    "warmup": (
        {"selection.warmup_steps": 7, "selection.keep_quantile": 0.3},
        {"warmup_steps": 7, "keep_quantile": 0.3},
    ),
    "automatic": ({"selection.keep_quantile": "auto"}, {"keep_quantile": "auto"}),
    "elements": ({"selection.level": "element"}, {"level": "element"}),
    "named": ({"selection.parameters": "attention"}, {"parameters": "attention"}),
}


@pytest.mark.parametrize("case", CASES)
def test_a_plain_loop_is_the_recipe_bit_for_bit(case: str, tmp_path: Path) -> None:
    overrides, settings = CASES[case]
    trainer = recorded(tmp_path, overrides)
    loop = Loop(trainer, **settings)
    loop.run(0, STEPS)
    assert not list(differing(weights(trainer.model), weights(loop.model)))
    if case != "elements":
        assert loop.masks == trainer.masks
        assert any(0 in masks.values() for masks in loop.masks)


@pytest.mark.parametrize("settings", [{}, {"warmup_steps": 12}])
def test_saved_and_loaded_in_the_middle(settings: dict[str, Any], tmp_path: Path) -> None:
    trainer = recorded(tmp_path, {f"selection.{name}": value for name, value in settings.items()})
    first = Loop(trainer, **settings)
    first.run(0, 9)
    file = io.BytesIO()
    parts = ("model", "optimizer", "scheduler")
    torch.save({part: getattr(first, part).state_dict() for part in parts}, file)
    file.seek(0)
    second = Loop(trainer, **settings)
    for part, state in torch.load(file, weights_only=True).items():
        getattr(second, part).load_state_dict(state)
    second.run(9, STEPS)
    assert not list(differing(weights(trainer.model), weights(second.model)))
    assert second.masks == trainer.masks[9:]


def test_other_kernels_agree() -> None:
    batch = TinyData()[0]
    batch = {name: value[None] for name, value in batch.items()}
    found = []
    for settings in ({}, {"foreach": True}, {"foreach": False}):
        model = tiny_bert(dropout=0.0)
        optimizer = RoseAdamW(model.named_parameters(), lr=1e-3, **settings)
        for _ in range(5):
            optimizer.zero_grad()
            model(**batch).loss.backward()
            optimizer.step()
        found.append(weights(model))
    for other in found[1:]:
        for name, weight in found[0].items():
            torch.testing.assert_close(other[name], weight, rtol=0, atol=1e-9)


def test_a_closure_is_called_before_the_choice() -> None:
    batch = {name: value[None] for name, value in TinyData()[0].items()}
    one, other = (tiny_bert(dropout=0.0) for _ in range(2))
    by_hand, by_closure = (RoseAdamW(model.named_parameters()) for model in (one, other))
    calls = []

    def closure() -> Tensor:
        calls.append(1)
        by_closure.zero_grad()
        loss = other(**batch).loss
        loss.backward()
        return loss

    for _ in range(3):
        by_hand.zero_grad()
        loss = one(**batch).loss
        loss.backward()
        by_hand.step()
        assert by_closure.step(closure) == loss
    assert len(calls) == 3
    assert not list(differing(weights(one), weights(other)))


def test_hooks_of_a_step_run_once() -> None:
    RoseAdamW(bert().named_parameters())
    model = bert()
    optimizer, calls = RoseAdamW(model.named_parameters()), []
    optimizer.register_step_pre_hook(lambda *_: calls.append("before"))
    optimizer.register_step_post_hook(lambda *_: calls.append("after"))
    optimizer.step()
    assert calls == ["before", "after"]


def test_a_gradient_scaler_changes_nothing_and_a_skipped_step_leaves_no_trace() -> None:
    batch = {name: value[None] for name, value in TinyData()[0].items()}
    found = []
    for scale in (None, 2.0**10):
        model = tiny_bert(dropout=0.0, dtype=torch.float32)
        optimizer = RoseAdamW(model.named_parameters(), lr=1e-3)
        scaler = torch.amp.GradScaler("cpu", init_scale=scale or 1.0, enabled=scale is not None)
        for step in range(5):
            overflows = step == 2
            if overflows and scale is None:
                continue
            optimizer.zero_grad()
            scaler.scale(model(**batch).loss * (torch.inf if overflows else 1)).backward()
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update(2.0**10 if scale else None)
        found.append(weights(model))
    assert not list(differing(*found))


@pytest.mark.parametrize("build", ARCHITECTURES, ids=lambda build: build.__name__)
def test_candidates_and_decay_are_those_of_the_trainer(build: Callable[[], nn.Module], tmp_path: Path) -> None:
    model = build()
    names = [name for name, _ in model.named_parameters()]
    assert candidates_by_name(names) == candidate_names(model)
    assert candidates_by_name([f"module.{name}" for name in names]) == [f"module.{n}" for n in candidate_names(model)]
    decaying = Trainer(model, arguments(tmp_path)).get_decay_parameter_names(model)
    first, second = RoseAdamW(model.named_parameters()).param_groups
    assert first["weight_decay"] == 0.01 and second["weight_decay"] == 0
    assert set(first["param_names"]) == set(decaying) & set(names)


def test_a_classifier_of_numbered_layers_is_no_block() -> None:
    assert candidates_by_name(["layers.0.mlp.weight", "head.0.weight", "head.3.weight"]) == ["layers.0.mlp.weight"]


def test_groups_stay_as_they_are_and_unfrozen_ones_join() -> None:
    model = tiny_bert(dtype=torch.float32)
    named = dict(model.named_parameters())
    head = [(name, p) for name, p in named.items() if name.startswith("classifier")]
    rest = [(name, p) for name, p in named.items() if not name.startswith("classifier")]
    optimizer = RoseAdamW([{"params": rest}], lr=1e-4, weight_decay=0.1)
    optimizer.add_param_group({"params": head, "lr": 1e-2})
    assert [(group["lr"], group["weight_decay"]) for group in optimizer.param_groups] == [(1e-4, 0.1), (1e-2, 0.1)]
    model(**{name: value[None] for name, value in TinyData()[0].items()}).loss.backward()
    before = weights(model)
    optimizer.step()
    assert set(differing(before, weights(model))) >= {"classifier.weight", "classifier.bias"}


def test_a_copy_goes_on_alike() -> None:
    batch = {name: value[None] for name, value in TinyData()[0].items()}
    model = tiny_bert(dropout=0.0)
    optimizer = RoseAdamW(model.named_parameters(), keep_quantile=0.3)
    pairs = [(model, optimizer)]
    for step in range(4):
        if step == 2:
            pairs.append(copy.deepcopy((model, optimizer)))
        for each, its_optimizer in pairs:
            its_optimizer.zero_grad()
            each(**batch).loss.backward()
            its_optimizer.step()
    assert not list(differing(*(weights(each) for each, _ in pairs)))


@pytest.mark.parametrize(
    ("given", "settings", "message"),
    [
        (lambda: bert().parameters(), {}, r"pass model\.named_parameters\(\)"),
        (lambda: nn.Linear(2, 2).named_parameters(), {}, "nothing to select among. The names look like weight, bias"),
        (lambda: bert().named_parameters(), {"parameters": "nothing"}, "no trainable parameter of this model matches"),
        (lambda: bert().named_parameters(), {"keep_quantile": 1.5}, "keep_quantile"),
    ],
)
def test_what_cannot_work_is_refused(given: Callable[[], Any], settings: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        RoseAdamW(given(), **settings)
