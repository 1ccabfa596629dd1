"""torch.compile: every recipe gives the weights that it gives without, and a perturbation is never compiled away."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate.state import AcceleratorState
from torch._dynamo.eval_frame import OptimizedModule
from torch._dynamo.utils import counters

from rosewood.recipe import load_recipe, recipe_names
from tiny import Recording, TinyData, differing, tiny_bert, trained, weights
from two_processes import in_two_processes

# Hooks on the word embeddings and inside the layers; the others take their time.
QUICK = {"r3f", "hiddencut"}


@pytest.fixture(autouse=True)
def fresh_compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """TrainingArguments pass the backend on by the environment, where it would outlive the test."""
    for variable in ("ACCELERATE_DYNAMO_BACKEND", "ACCELERATE_DYNAMO_MODE"):
        monkeypatch.setenv(variable, "no")
        monkeypatch.delenv(variable)
    AcceleratorState._reset_state(reset_partial_state=True)
    torch.compiler.reset()
    counters.clear()
    yield
    os.environ.pop("ACCELERATE_DYNAMO_BACKEND", None)
    AcceleratorState._reset_state(reset_partial_state=True)
    torch.compiler.reset()


def run(name: str, directory: Path, **settings: Any) -> Recording:
    return trained(name, directory, model=tiny_bert(layers=1), data=TinyData(16), max_steps=2, **settings)


def compare(name: str, directory: Path, backend: str) -> None:
    plain = run(name, directory)
    assert not counters["stats"]
    compiled = run(name, directory, torch_compile_backend=backend)
    # Perturbed passes are never compiled, and FreeLB has no others.
    assert bool(counters["stats"]) == (name != "freelb")
    assert not list(differing(weights(plain.model), weights(compiled.model)))


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in recipe_names()]
)
def test_compiling_gives_the_same_weights(name: str, tmp_path: Path) -> None:
    """The compiled graph runs its own backward (aot), but the same kernels, so nothing may differ."""
    compare(name, tmp_path, "aot_eager")


LATER = {
    "a warm-up": {"selection.warmup_steps": 1},
    "a part of the batch": {"selection.probe_fraction": 0.5, "objective.passes": 1},
    "batches of several lengths": {},
}


@pytest.mark.parametrize(
    "case", ["a warm-up", *(pytest.param(case, marks=pytest.mark.slow) for case in LATER if case != "a warm-up")]
)
def test_a_risk_is_read_from_graphs_that_were_compiled_for_one_backward(case: str, tmp_path: Path) -> None:
    """The first backward through them keeps nothing, or they were compiled with their backward, for any length."""
    data = [*TinyData(8), *TinyData(8, length=6 if "lengths" in case else 8, seed=1)]
    recipe = load_recipe("rose-first", LATER[case])
    settings: dict[str, Any] = {"data": data, "max_steps": 4, "train_sampling_strategy": "sequential"}
    plain = trained(recipe, tmp_path, model=tiny_bert(layers=1), **settings)
    compiled = trained(recipe, tmp_path, model=tiny_bert(layers=1), torch_compile_backend="aot_eager", **settings)
    assert any(0 in masks.values() for masks in compiled.masks)
    assert plain.masks == compiled.masks
    assert not list(differing(weights(plain.model), weights(compiled.model)))


def with_and_without(rank: int, name: str, folder: Path) -> list[dict[str, torch.Tensor]]:
    found = []
    for backend in (None, "eager"):
        trainer = run(name, folder / f"out{rank}", torch_compile_backend=backend)
        assert isinstance(trainer.model_wrapped, OptimizedModule) == (backend is not None)
        found.append(weights(trainer.model))
        AcceleratorState._reset_state()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rose-ensemble", "smart"])
def test_compiling_in_two_processes(name: str, tmp_path: Path) -> None:
    for plain, compiled in in_two_processes(with_and_without, tmp_path, name, tmp_path):
        assert not list(differing(plain, compiled))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vanilla", "r3f", "rose-ensemble", "r-drop+rose-first", "smart", "mixout"])
def test_inductor(name: str, tmp_path: Path) -> None:
    """Other kernels and other random numbers: without dropout equal but for rounding."""
    settings: dict[str, Any] = {"data": TinyData(16), "max_steps": 2}
    probed = "rose" in name or "drop" in name
    model = [tiny_bert(layers=1, dropout=0.1 if probed else 0.0) for _ in range(2)]
    plain = trained(name, tmp_path, model=model[0], **settings)
    compiled = trained(name, tmp_path, model=model[1], torch_compile=True, **settings)
    assert counters["stats"]["unique_graphs"] >= 1
    if probed:
        assert all(weight.isfinite().all() for weight in compiled.model.parameters())
        return
    expected = weights(plain.model)
    for parameter, weight in weights(compiled.model).items():
        torch.testing.assert_close(weight, expected[parameter], rtol=0, atol=1e-9)
