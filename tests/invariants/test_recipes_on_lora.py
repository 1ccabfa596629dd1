"""Every recipe on a LoRA model: only the adapter and the head move, and what holds for whole models holds here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BertForSequenceClassification, Trainer

from every_recipe import every_recipe
from rose_oracle import Oracle, Settings, undecayed
from rosewood.recipe import load_recipe
from rosewood.training.trainer import RobustTrainer
from tiny import TinyData, arguments, differing, tiny_bert, trained, weights
from tiny_lora import block_factors, moved, tiny_lora, trainable_names

STEPS = 6


@pytest.mark.parametrize("name", every_recipe())
def test_every_recipe_moves_the_adapter_and_nothing_else(name: str, tmp_path: Path) -> None:
    model = tiny_lora()
    before = weights(model)
    trainer = trained(name, tmp_path, model=model, data=TinyData(16), max_steps=4)
    changed = set(differing(before, weights(model)))
    assert changed <= trainable_names(model)
    assert any(".lora_B." in parameter for parameter in changed), "the adapter never left 0"
    assert any("classifier.modules_to_save" in parameter for parameter in changed)
    assert {parameter for masks in trainer.masks for parameter in masks} <= block_factors(model)
    assert all(torch.isfinite(weight).all() for weight in weights(model).values())


SETTINGS: dict[str, dict[str, Any]] = {"flooding": {"objective.level": 2.0}}  # as published, below any loss here


@pytest.mark.parametrize("name", every_recipe(but=["vanilla"]))
def test_every_recipe_differs_from_vanilla(name: str, tmp_path: Path) -> None:
    results = []
    for recipe in (load_recipe("vanilla"), load_recipe(name, SETTINGS.get(name))):
        model = moved(tiny_lora())  # at B = 0 an anchor has nothing to hold
        trained(recipe, tmp_path, model=model, data=TinyData(16), max_steps=3)
        results.append(weights(model))
    plain, other = results
    assert any((plain[parameter] - other[parameter]).abs().max() > 1e-7 for parameter in plain)


@pytest.mark.parametrize(
    "settings",
    [{}, {"gradient_accumulation_steps": 2}, {"bf16": True}, {"gradient_checkpointing": True}],
    ids=str,
)
def test_vanilla_is_the_trainer_bit_for_bit(settings: dict[str, Any], tmp_path: Path) -> None:
    trainers = []
    for cls in (Trainer, RobustTrainer):
        model = tiny_lora(dtype=torch.float32)
        trainer = cls(model=model, args=arguments(tmp_path, **settings), train_dataset=TinyData())
        trainer.model_accepts_loss_kwargs = False
        trainer.train()
        trainers.append(trainer)
    plain, robust = trainers
    assert not list(differing(weights(plain.model), weights(robust.model)))
    assert any(differing(weights(tiny_lora(dtype=torch.float32)), weights(robust.model)))


@pytest.mark.parametrize("accumulation", [1, 2])
@pytest.mark.parametrize("variant", ["first", "second", "ensemble"])
def test_rose_against_algorithm_1_on_the_factors(variant: str, accumulation: int, tmp_path: Path) -> None:
    settings = Settings(variant, STEPS)
    trainer = trained(
        f"rose-{variant}",
        tmp_path,
        model=moved(tiny_lora()),  # at B = 0 all gradients of A are 0, and the transcription divides by them
        data=TinyData(4 * accumulation * STEPS),
        max_steps=STEPS,
        gradient_accumulation_steps=accumulation,
    )
    slow = moved(tiny_lora()).train()
    names = trainable_names(slow)
    oracle = Oracle(_TrainableOnly(slow), settings, block_factors(slow), undecayed(names))
    torch.set_rng_state(trainer.micro_batches[0][0])
    batches = [batch for _, batch in trainer.micro_batches]
    for start in range(0, len(batches), accumulation):
        oracle.step(batches[start : start + accumulation])
    assert any(mask < 1 for masks in oracle.masks for mask in masks.values()), "nothing was ever frozen"
    for theirs, ours in zip(trainer.masks, oracle.masks, strict=True):
        assert {name: theirs.get(name, 1.0) for name in oracle.candidates} == ours
    expected = weights(slow)
    for name, weight in weights(trainer.model).items():
        torch.testing.assert_close(weight, expected[name], rtol=0, atol=1e-9)


def test_a_sketch_of_all_directions_selects_what_the_gradients_select(tmp_path: Path) -> None:
    exact, sketched = (
        trained(load_recipe("rose-first", settings), tmp_path, model=moved(tiny_lora()), max_steps=4).masks
        for settings in ({}, {"selection.risk_sketch": 32})
    )
    assert exact == sketched


class _TrainableOnly:
    """The model as the oracle wants it: it differentiates every parameter that it is shown."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def __call__(self, **inputs: Any) -> Any:
        return self._model(**inputs)

    def named_parameters(self) -> list[tuple[str, Any]]:
        return [(name, p) for name, p in self._model.named_parameters() if p.requires_grad]


@pytest.mark.parametrize(
    "name", ["vanilla", "rose-ensemble", "roast", "child-tuning-d", "wconsol", "mixout", "smart", "lp-ft"]
)
def test_a_resumed_run_is_the_uninterrupted_one(name: str, tmp_path: Path) -> None:
    settings = {"max_steps": 6, "save_strategy": "steps", "save_steps": 4}
    whole = trained(name, tmp_path, model=tiny_lora(dtype=torch.float32), data=TinyData(16), **settings)
    checkpoint = tmp_path / "checkpoint-4"
    assert (checkpoint / "adapter_model.safetensors").exists()
    assert not (checkpoint / "model.safetensors").exists()
    # Another adapter and head on the same base, so that nothing but the checkpoint can explain the result.
    other = moved(tiny_lora(dtype=torch.float32), size=1.0)
    resumed = trained(name, tmp_path, model=other, data=TinyData(16), resume=str(checkpoint), **settings)
    assert not list(differing(weights(whole.model), weights(resumed.model)))
    assert whole.masks[4:] == resumed.masks


def test_saved_loaded_and_merged_give_the_same_logits(tmp_path: Path) -> None:
    from peft import PeftModel

    trainer = trained("rose-ensemble", tmp_path, model=tiny_lora(), max_steps=4)
    trainer.save_model(str(tmp_path / "saved"))
    assert (tmp_path / "saved" / "adapter_config.json").exists()
    batch = {"input_ids": TinyData().ids}
    model = trainer.model.eval()
    expected = model(**batch).logits
    loaded = PeftModel.from_pretrained(tiny_bert(), tmp_path / "saved").eval()
    assert torch.equal(loaded(**batch).logits, expected)
    with model.disable_adapter():
        torch.testing.assert_close(model(**batch).logits, tiny_bert().eval()(**batch).logits, rtol=0, atol=0)
    loaded.merge_and_unload().save_pretrained(tmp_path / "merged")
    merged = BertForSequenceClassification.from_pretrained(tmp_path / "merged", dtype=torch.float64)
    torch.testing.assert_close(merged(**batch).logits, expected, rtol=0, atol=1e-12)


def test_child_tuning_d_finds_its_child_where_the_gradients_are(tmp_path: Path) -> None:
    """Before the first step B is 0, so no gradient reaches A: the child lies in B."""
    trainer = trained(load_recipe("child-tuning-d"), tmp_path, model=tiny_lora(), max_steps=3, weight_decay=0.0)
    start = weights(tiny_lora())
    changed = set(differing(start, weights(trainer.model))) & block_factors(trainer.model)
    assert changed
    assert all(".lora_B." in name for name in changed)
