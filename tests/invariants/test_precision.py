"""Every recipe in half precision: the loss scale changes nothing, a skipped step never was, weights stay float32."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from every_recipe import every_recipe
from keyed_draws import keyed_draws
from keyed_dropout import keyed_dropout
from loss_scaling import Flushed, overflow_in, scale_loss
from rosewood.recipe import load_recipe
from rosewood.tensors.divergences import forward_kl, midpoint_kl, symmetric_kl
from tiny import Recording, TinyData, arguments, differing, tiny_bert, trained, weights
from uncached import uncached

SKIPPED = {1, 4}


class Idle(Recording):
    """Does nothing in some steps: no forward, no backward, no optimiser."""

    def training_step(self, model: nn.Module, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Tensor:
        if self.state.global_step in SKIPPED:
            self.optimizer.step = lambda: None
            return torch.zeros(())
        vars(self.optimizer).pop("step", None)
        return super().training_step(model, inputs, *args, **kwargs)


def keyed_trainer(cls: type[Recording], name: str, directory: Path) -> Recording:
    # Two epochs and, for LP-FT, two stages; a constant rate, because a skipped step does not count for a schedule.
    directory.mkdir()
    return cls(
        model=tiny_bert(),
        args=arguments(directory, max_steps=6, max_grad_norm=0.1, lr_scheduler_type="constant"),
        train_dataset=TinyData(size=12),
        recipe=uncached(name),
        history_file=directory / "history.jsonl",
    )


def train_keyed(trainer: Recording) -> None:
    with keyed_dropout(trainer.model), keyed_draws():
        trainer.train()


@pytest.mark.filterwarnings("ignore:Seems like `optimizer.step")
@pytest.mark.parametrize("name", every_recipe("advweight:sam"))
def test_the_loss_scale_changes_nothing_and_a_skipped_step_leaves_no_trace(name: str, tmp_path: Path) -> None:
    idle, scaled = (keyed_trainer(cls, name, tmp_path / cls.__name__) for cls in (Idle, Recording))
    scale_loss(scaled)
    overflow_in(scaled, SKIPPED)
    train_keyed(idle)
    train_keyed(scaled)
    assert scaled.accelerator.scaler.get_scale() == 2.0**8, "halved by each of the two skipped steps"
    assert idle.masks == scaled.masks
    assert history(scaled) == history(idle)
    assert [step for step, name in history(scaled) if name == "grad_norm"] == [1, 3, 4, 6]
    torch.testing.assert_close(everything(scaled), everything(idle), rtol=0, atol=0)


def everything(trainer: Recording) -> dict[str, Any]:
    """All that a checkpoint would keep: weights, moments and step counts, the state of the recipe's parts."""
    assert trainer._engine is not None
    return {
        "weights": weights(trainer.model),
        "optimizer": trainer.optimizer.state_dict()["state"],
        "engine": trainer._engine.state_dict(),
    }


def history(trainer: Recording) -> dict[tuple[int, str], float]:
    """Every single number of the history, by step and name."""
    found = {}
    for record in map(json.loads, trainer.history.path.read_text().splitlines()):
        for name, value in (record | record.pop("terms")).items():
            numbers = value if isinstance(value, list) else [value]
            found |= {(record["step"], name + "." * i): number for i, number in enumerate(numbers)}
    return found


class Flushing(Recording):
    """Loses every gradient that no loss scale has enlarged, as fp16 loses small ones."""

    def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
        loss, outputs = super().compute_loss(*args, **kwargs)
        return Flushed.apply(loss), outputs


@pytest.mark.parametrize("name", ["advembed", "advweight:sam", "freelb", "child-tuning-d", "roast"])
def test_the_loss_scale_reaches_every_gradient(name: str, tmp_path: Path) -> None:
    """Also those of an ascent and of the pass before training, which the optimiser never sees."""
    plain, flushing = (keyed_trainer(cls, name, tmp_path / cls.__name__) for cls in (Recording, Flushing))
    for trainer in (plain, flushing):
        scale_loss(trainer)
        train_keyed(trainer)
    assert not list(differing(weights(plain.model), weights(flushing.model)))


class Half(Recording):
    """Real fp16 on the CPU, which transformers keeps for GPUs: autocast, and a scaler that finds its scale."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        scale_loss(self, 2.0**16)

    def compute_loss_context_manager(self) -> AbstractContextManager[None]:
        return torch.autocast("cpu", torch.float16)  # type: ignore[return-value]


def assert_sound(trainer: Recording, steps: int) -> None:
    """Weights, moments and engine state are finite, and none of them is in half precision."""
    state = trainer.optimizer.state_dict()["state"].values()
    tensors = [*weights(trainer.model).values(), *(value for row in state for value in row.values())]
    tensors += [value for value in trainer._engine.state_dict().values() if value.is_floating_point()]
    assert all(tensor.isfinite().all() for tensor in tensors)
    assert {tensor.dtype for tensor in tensors} <= {torch.float32, torch.float64}
    records = trainer.history.path.read_text().splitlines()
    assert len(records) == steps
    for record in map(json.loads, records):
        assert all(abs(value) < 100 for value in record["terms"].values()), record


def half_trainer(cls: type[Recording], name: Any, directory: Path, **settings: Any) -> Recording:
    return cls(
        model=tiny_bert(dtype=torch.float32),
        args=arguments(directory, **{"max_steps": 4} | settings),
        train_dataset=TinyData(size=12),
        recipe=name,
        history_file=directory / "history.jsonl",
    )


@pytest.mark.parametrize("name", every_recipe())
def test_every_recipe_trains_in_fp16(name: str, tmp_path: Path) -> None:
    trainer = half_trainer(Half, name, tmp_path)
    trainer.train()
    assert_sound(trainer, steps=4)


@pytest.mark.parametrize("name", every_recipe())
def test_every_recipe_trains_in_bf16(name: str, tmp_path: Path) -> None:
    trainer = half_trainer(Recording, name, tmp_path, bf16=True)
    trainer.train()
    assert_sound(trainer, steps=4)


@pytest.mark.parametrize("name", ["rose-ensemble", "roast", "smart", "mixout", "advweight", "lp-ft"])
def test_bf16_with_checkpointing_and_accumulation(name: str, tmp_path: Path) -> None:
    """Checkpointing gives bit-equal weights also with autocast and several micro-batches."""
    settings = {"bf16": True, "gradient_accumulation_steps": 2, "per_device_train_batch_size": 2}
    plain, saving = (
        half_trainer(Recording, name, tmp_path, gradient_checkpointing=checkpointing, **settings)
        for checkpointing in (False, True)
    )
    for trainer in (plain, saving):
        torch.manual_seed(0)
        trainer.train()
        assert_sound(trainer, steps=4)
        trainer.history.path.unlink()
    assert len(saving.micro_batches) == 8
    assert not list(differing(weights(plain.model), weights(saving.model)))


@pytest.mark.parametrize("name", every_recipe())
def test_every_recipe_trains_weights_that_are_bf16_themselves(name: str, tmp_path: Path) -> None:
    model = tiny_bert(dtype=torch.bfloat16)
    before = weights(model)
    after = weights(trained(name, tmp_path, model=model, data=TinyData(size=12), max_steps=2).model)
    assert all(weight.isfinite().all() and weight.dtype == torch.bfloat16 for weight in after.values())
    assert any(differing(before, after))


@pytest.mark.parametrize("order", ["first", "second", "ensemble"])
def test_masks_of_bf16_weights_are_made_in_float32(order: str, tmp_path: Path) -> None:
    """Eight bits would round risks to ties, and quantiles keep ties."""
    recipe = load_recipe(f"rose-{order}", {"selection.level": "element"})
    trainer = trained(recipe, tmp_path, model=tiny_bert(dtype=torch.bfloat16), max_steps=3)
    assert all(mask.dtype == torch.float32 for mask in trainer.masks[-1].values())


@pytest.mark.parametrize("measure", [symmetric_kl, forward_kl, midpoint_kl])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_divergences_are_computed_in_float32_under_autocast(measure: Any, dtype: torch.dtype) -> None:
    first, second = torch.randn(2, 8, 3).to(dtype)
    with torch.autocast("cpu", dtype):
        found = measure(first, second)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), measure(first.double(), second.double()), rtol=1e-5, atol=1e-8)
