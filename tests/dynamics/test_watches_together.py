"""Two processes, with a model each or with half of one each, record what one process with twice the batch does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from keyed_draws import keyed_draws
from keyed_dropout import keyed_dropout
from rosewood.dynamics import WATCHES, was_watched
from rosewood.dynamics.record import read_seen
from rosewood.recipe import load_recipe
from sharded import SHARDED, allow_fsdp_on_cpu
from tiny import Recording, TinyData, arguments, tiny_bert
from two_processes import in_two_processes

RECIPES = ("vanilla", "rose-ensemble", "child-tuning-d")


def train(recipe: str, run: Path, batch: int, **settings: Any) -> None:
    # A type of tokens that cannot be halved: the second process has nothing of it.
    model = tiny_bert(dropout=0.4, type_vocab_size=1)
    names = [name for name in WATCHES if name != "masks" or load_recipe(recipe).selection.makes_masks]
    settings |= {"per_device_train_batch_size": batch, "max_steps": 4}
    with keyed_dropout(model), keyed_draws():
        Recording(
            model=model,
            args=arguments(run / "checkpoints", **settings),
            train_dataset=TinyData(size=24),
            recipe=recipe,
            watches=[WATCHES[name](run / "dynamics", every=1) for name in names],
        ).train()


def with_a_model_each(rank: int, folder: Path) -> None:
    for recipe in RECIPES:
        train(recipe, folder / recipe, batch=4)


def with_half_a_model_each(rank: int, folder: Path) -> None:
    allow_fsdp_on_cpu()
    for recipe in RECIPES:
        train(recipe, folder / recipe, batch=4, **SHARDED)


@pytest.mark.parametrize("together", [with_a_model_each, pytest.param(with_half_a_model_each, marks=pytest.mark.slow)])
def test_two_processes_record_what_one_does(together: Callable[..., None], tmp_path: Path) -> None:
    in_two_processes(together, tmp_path, tmp_path)
    for recipe in RECIPES:
        train(recipe, tmp_path / "alone" / recipe, batch=8)
        assert was_watched(tmp_path / recipe) == was_watched(tmp_path / "alone" / recipe)
        for name in was_watched(tmp_path / recipe):
            found, expected = (
                read_seen(run, WATCHES[name].seen) for run in (tmp_path / recipe, tmp_path / "alone" / recipe)
            )
            assert len(found) == len(expected) == 4
            for mine, theirs in zip(found, expected, strict=True):
                assert flat(mine.model_dump(exclude_none=True)) == pytest.approx(
                    flat(theirs.model_dump(exclude_none=True)), rel=1e-4, abs=1e-7
                )


def flat(record: Any, at: str = "") -> dict[str, Any]:
    if not isinstance(record, dict):
        return {at: record}
    return {key: value for name, inner in record.items() for key, value in flat(inner, f"{at}/{name}").items()}
