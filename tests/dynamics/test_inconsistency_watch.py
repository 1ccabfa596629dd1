"""The recorded inconsistency is what a slow replay of the passes counts."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rosewood.dynamics.inconsistency import InconsistencyWatch, SeenInconsistency
from rosewood.dynamics.record import read_seen
from rosewood.recipe import load_recipe
from tiny import Recording, TinyData, arguments, tiny_bert
from tiny_tasks import TokenData, token_classifier

STEPS, BATCH = 5, 8


def watched(recipe: Any, folder: Path, model: Any = None, data: Any = None, **settings: Any) -> Recording:
    trainer = Recording(
        model=tiny_bert(dropout=0.4) if model is None else model,
        # A learning rate of 0: the weights of every step are those of the model.
        args=arguments(folder, max_steps=STEPS, per_device_train_batch_size=BATCH, learning_rate=0.0, **settings),
        train_dataset=TinyData(size=80) if data is None else data,
        recipe=recipe,
        watches=[InconsistencyWatch(folder / "dynamics", every=1)],
    )
    trainer.train()
    return trainer


def classes(model: Any, batch: dict[str, Tensor]) -> Tensor:
    with torch.no_grad():
        return model(**batch).logits.argmax(-1)


def own_seed(step: int, micro_batch: int = 0) -> int:
    digest = sha256(repr((0, "inconsistency", step, micro_batch, 0)).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


@pytest.mark.parametrize("recipe", ["rose-ensemble", "r-drop"])
def test_two_passes_of_the_recipe_are_compared(recipe: str, tmp_path: Path) -> None:
    trainer = watched(recipe, tmp_path)
    model = trainer.model.train()
    found = read_seen(tmp_path, SeenInconsistency)
    for seen, (state, batch) in zip(found, trainer.micro_batches, strict=True):
        torch.set_rng_state(state)
        differing = int((classes(model, batch) != classes(model, batch)).sum())
        assert (seen.compared, seen.differing) == (BATCH, differing)
    assert sum(seen.differing for seen in found) > 0


@pytest.mark.parametrize("accumulation", [1, 2])
def test_a_missing_pass_is_made_with_random_numbers_of_its_own(accumulation: int, tmp_path: Path) -> None:
    trainer = watched("vanilla", tmp_path, gradient_accumulation_steps=accumulation)
    model = trainer.model.train()
    expected = []
    for place, (state, batch) in enumerate(trainer.micro_batches):
        torch.set_rng_state(state)
        first = classes(model, batch)
        torch.manual_seed(own_seed(*divmod(place, accumulation)))
        expected.append(int((classes(model, batch) != first).sum()))
    found = read_seen(tmp_path, SeenInconsistency)
    by_step = torch.tensor(expected).view(-1, accumulation).sum(1).tolist()
    assert [seen.differing for seen in found] == by_step
    assert [seen.compared for seen in found] == [BATCH * accumulation] * STEPS
    assert sum(expected) > 0


def test_without_a_clean_pass_both_are_made(tmp_path: Path) -> None:
    trainer = watched("freelb", tmp_path)
    model = trainer.model.train()
    for seen, (_, batch) in zip(read_seen(tmp_path, SeenInconsistency), trainer.micro_batches, strict=True):
        torch.manual_seed(own_seed(seen.step - 1))
        assert seen.differing == int((classes(model, batch) != classes(model, batch)).sum())


def test_tokens_with_labels_are_counted_one_by_one(tmp_path: Path) -> None:
    trainer = watched("r-drop", tmp_path, token_classifier(), TokenData(size=40))
    for seen, (_, batch) in zip(read_seen(tmp_path, SeenInconsistency), trainer.micro_batches, strict=True):
        assert seen.compared == int((batch["labels"] != -100).sum())


def test_a_recipe_that_probes_by_itself(tmp_path: Path) -> None:
    watched(load_recipe("rose-first", {"objective.passes": 1}), tmp_path)
    assert len(read_seen(tmp_path, SeenInconsistency)) == STEPS
