"""Every recipe gives the same weights on two processes as on one, at the same batch over all."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from every_recipe import every_recipe
from keyed_draws import keyed_draws
from keyed_dropout import keyed_dropout
from rosewood.recipe import load_recipe
from tiny import Recording, TinyData, tiny_bert, trained, weights
from two_processes import asked_for, in_two_processes

STEPS = 5


def run(name: str, folder: Path, batch: int) -> Recording:
    model = tiny_bert()
    with keyed_dropout(model), keyed_draws():
        # Full steps only: where examples are left over, accelerate gives some of them to both processes.
        settings: dict[str, Any] = {"per_device_train_batch_size": batch, "max_steps": STEPS, "logging_steps": 1}
        return trained(load_recipe(name), folder, model=model, data=TinyData(size=24), **settings)


def facts(run: Recording) -> dict[str, Any]:
    masks = [{name: torch.as_tensor(value) for name, value in step.items()} for step in run.masks]
    losses = [{k: v for k, v in entry.items() if "loss" in k} for entry in run.state.log_history]
    return {"weights": weights(run.model), "masks": masks, "losses": losses}


def together(rank: int, folder: Path, names: list[str]) -> dict[str, Any]:
    return {name: facts(run(name, folder / f"out{rank}", batch=4)) for name in names}


@pytest.fixture(scope="module")
def ranks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("together")
    return in_two_processes(together, folder, folder, asked_for(request, "name"))


@pytest.mark.parametrize("name", every_recipe())
def test_two_processes_are_one_with_twice_the_batch(name: str, ranks: list[dict[str, Any]], tmp_path: Path) -> None:
    alone, together = facts(run(name, tmp_path, batch=8)), ranks[0][name]
    for parameter, weight in together["weights"].items():
        torch.testing.assert_close(weight, alone["weights"][parameter], rtol=0, atol=1e-6, msg=parameter)
    assert_masks_equal(together["masks"], alone["masks"])
    for mine, theirs in zip(together["losses"], alone["losses"], strict=True):
        assert mine == pytest.approx(theirs, rel=1e-4)


@pytest.mark.parametrize("name", every_recipe())
def test_both_processes_have_the_same_masks_and_weights(name: str, ranks: list[dict[str, Any]]) -> None:
    first, second = (rank[name] for rank in ranks)
    assert_masks_equal(first["masks"], second["masks"])
    assert all(torch.equal(weight, second["weights"][key]) for key, weight in first["weights"].items())


def assert_masks_equal(some: list[dict[str, Tensor]], others: list[dict[str, Tensor]]) -> None:
    assert len(some) == len(others) == STEPS
    for one, other in zip(some, others, strict=True):
        assert one.keys() == other.keys()
        assert all(torch.equal(value, other[key]) for key, value in one.items())
