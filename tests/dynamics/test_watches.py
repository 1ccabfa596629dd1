"""Watches look on: training is the same bit for bit, a resumed record is the uninterrupted one, nonsense is refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import TrainerCallback

from rosewood.dynamics import WATCHES, was_watched
from rosewood.dynamics.drift import SeenDrift
from rosewood.dynamics.inconsistency import SeenInconsistency
from rosewood.dynamics.masks import SeenMasks
from rosewood.dynamics.record import Watch, read_seen
from rosewood.errors import RunError
from rosewood.recipe import load_recipe
from tiny import Recording, TinyData, arguments, differing, tiny_bert, weights
from tiny_lora import tiny_lora

MASKLESS = ("vanilla", "r-drop", "adv-mixout", "freelb", "lp-ft", "rift")
RECIPES = (*MASKLESS, "rose-ensemble", "rose-second", "roast", "child-tuning-d", "child-tuning-f")


def watches(recipe: Any, run: Path, every: int) -> list[Watch]:
    names = [name for name in WATCHES if name != "masks" or load_recipe(recipe).selection.makes_masks]
    return [WATCHES[name](run / "dynamics", every) for name in names]


class Stop(TrainerCallback):
    """An interruption after some steps."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == self.step:
            raise KeyboardInterrupt


def trainer(
    recipe: Any, run: Path, watching: Sequence[Watch], model: nn.Module | None = None, **settings: Any
) -> Recording:
    callbacks = [Stop(settings.pop("stop"))] if "stop" in settings else None
    defaults: dict[str, Any] = {"max_steps": 6, "logging_steps": 2}
    return Recording(
        model=tiny_bert(dtype=torch.float32) if model is None else model,
        args=arguments(run, **(defaults | settings)),
        train_dataset=TinyData(size=16),
        recipe=recipe,
        watches=watching,
        callbacks=callbacks,
    )


@pytest.mark.parametrize("recipe", RECIPES)
def test_watching_changes_nothing(recipe: str, tmp_path: Path) -> None:
    settings = {"gradient_accumulation_steps": 2} if recipe in ("vanilla", "rose-ensemble") else {}
    alone = trainer(recipe, tmp_path, [], **settings)
    alone.train()
    watched = trainer(recipe, tmp_path, watches(recipe, tmp_path, every=1), **settings)
    watched.train()
    assert not list(differing(weights(alone.model), weights(watched.model)))
    states = zip(alone.micro_batches, watched.micro_batches, strict=True)
    assert all(torch.equal(mine[0], other[0]) for mine, other in states), "the random state of each batch"
    for name in was_watched(tmp_path):
        assert [seen.step for seen in read_seen(tmp_path, WATCHES[name].seen)] == [1, 2, 3, 4, 5, 6], name


@pytest.mark.parametrize("recipe", ["vanilla", "rose-ensemble", "roast"])
def test_a_resumed_record_is_the_uninterrupted_one(recipe: str, tmp_path: Path) -> None:
    saving = {"save_strategy": "steps", "save_steps": 2}
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    trainer(recipe, whole, watches(recipe, whole, every=2), **saving).train()
    with pytest.raises(KeyboardInterrupt):
        trainer(recipe, broken, watches(recipe, broken, every=2), stop=5, **saving).train()
    # Steps 3 to 5 are repeated, of which 4 had been recorded.
    resumed = trainer(recipe, broken, watches(recipe, broken, every=2), **saving)
    resumed.train(resume_from_checkpoint=str(broken / "checkpoint-2"))
    assert was_watched(broken) == was_watched(whole)
    for name in was_watched(whole):
        assert WATCHES[name].seen.path(broken).read_text() == WATCHES[name].seen.path(whole).read_text()
        assert [seen.step for seen in read_seen(broken, WATCHES[name].seen)] == [2, 4, 6]


def test_records_are_on_disk_when_a_checkpoint_is(tmp_path: Path) -> None:
    """A killed process has no `finally`."""
    written = []

    class Reader(TrainerCallback):
        def on_save(self, *args: Any, **kwargs: Any) -> None:
            written.append([seen.step for seen in read_seen(tmp_path, SeenDrift)])

    watched = trainer(
        "vanilla",
        tmp_path,
        watches("vanilla", tmp_path, every=1),
        save_strategy="steps",
        save_steps=3,
        logging_steps=99,
    )
    watched.add_callback(Reader())
    watched.train()
    assert written == [[1, 2, 3], [1, 2, 3, 4, 5, 6]]


def test_every_kth_step_and_the_last_are_recorded(tmp_path: Path) -> None:
    trainer("vanilla", tmp_path, watches("vanilla", tmp_path, every=4)).train()
    assert [seen.step for seen in read_seen(tmp_path, SeenDrift)] == [4, 6]
    assert [seen.step for seen in read_seen(tmp_path, SeenInconsistency)] == [4, 6]


def test_lora_is_watched_too(tmp_path: Path) -> None:
    alone = trainer("rose-ensemble", tmp_path, [], model=tiny_lora(dtype=torch.float32))
    alone.train()
    watching = watches("rose-ensemble", tmp_path, every=1)
    watched = trainer("rose-ensemble", tmp_path, watching, model=tiny_lora(dtype=torch.float32))
    watched.train()
    assert not list(differing(weights(alone.model), weights(watched.model)))
    kept = read_seen(tmp_path, SeenMasks)[-1].kept
    assert list(kept) == ["layer 0", "layer 1"]
    assert "attention.self.query.lora_A.default.weight" in kept["layer 0"]


def test_nonsense_is_refused_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="recipe vanilla masks nothing: leave it out, or choose a recipe with"):
        trainer("vanilla", tmp_path, [WATCHES["masks"](tmp_path)])
    with pytest.raises(RunError, match="BertForSequenceClassification has no dropout: leave it out, or give the model"):
        trainer("vanilla", tmp_path, [WATCHES["inconsistency"](tmp_path)], model=tiny_bert(dropout=0.0))
    with pytest.raises(RunError, match="predicts a number"):
        trainer("vanilla", tmp_path, [WATCHES["inconsistency"](tmp_path)], model=tiny_bert(num_labels=1))
    pissa = tiny_lora(dtype=torch.float32, init_lora_weights="pissa")
    with pytest.raises(RunError, match="has moved a part of them into the adapter"):
        trainer("vanilla", tmp_path, [WATCHES["drift"](tmp_path)], model=pissa)
    with pytest.raises(RunError, match="with k at least 1, got every=0"):
        WATCHES["drift"](tmp_path, every=0)
