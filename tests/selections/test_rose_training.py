"""ROSE inside the engine: what moves, what does not, and what the loss scaler may change."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import (
    BartConfig,
    BartForSequenceClassification,
    LlamaConfig,
    LlamaForSequenceClassification,
    TrainerCallback,
)

import rosewood.selections.rose as rose_module
from loss_scaling import Flushed, overflow_in, scale_loss
from rose_oracle import Oracle, Settings, bert_candidates, undecayed
from rosewood.errors import RecipeError
from rosewood.models.modes import DropoutSetting, has_dropout
from rosewood.recipe import build_recipe, load_recipe
from rosewood.training.trainer import RobustTrainer
from tiny import Recording, TinyData, arguments, differing, tiny_bert, trained, weights

VARIANTS = ["first", "second", "ensemble"]


class Snapshots(TrainerCallback):
    """The weights after every step."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.taken = [weights(model)]

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        self.taken.append(weights(self.model))


@pytest.mark.parametrize("variant", VARIANTS)
def test_frozen_tensors_keep_every_bit_and_the_others_move(variant: str, tmp_path: Path) -> None:
    model = tiny_bert(dtype=torch.float32)
    snapshots = Snapshots(model)
    trainer = Recording(
        model=model,
        args=arguments(tmp_path, max_steps=6, weight_decay=0.1),
        train_dataset=TinyData(),
        recipe=load_recipe(f"rose-{variant}", {"selection.keep_quantile": 0.3}),
        callbacks=[snapshots],
    )
    trainer.train()
    frozen_ever = False
    for masks, before, after in zip(trainer.masks, snapshots.taken[:-1], snapshots.taken[1:], strict=True):
        moved = set(differing(before, after))
        frozen = {name for name, mask in masks.items() if mask == 0}
        frozen_ever |= bool(frozen)
        assert moved == set(before) - frozen
    assert frozen_ever


@pytest.mark.parametrize("variant", ["first", "ensemble"])
def test_masks_do_not_depend_on_the_scale_of_the_divergence(
    variant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = trained(f"rose-{variant}", tmp_path, max_steps=5)
    original = rose_module.symmetric_kl
    monkeypatch.setattr(rose_module, "symmetric_kl", lambda *args: 1024 * original(*args))
    scaled = trained(f"rose-{variant}", tmp_path, max_steps=5)
    assert plain.masks == scaled.masks
    assert not list(differing(weights(plain.model), weights(scaled.model)))


def test_dropout_zero_is_refused_before_anything_happens(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"has no dropout.*set selection\.dropout \(0\.1 in the paper\)"):
        RobustTrainer(model=tiny_bert(dropout=0.0), args=arguments(tmp_path), recipe="rose-first")


def test_the_dropout_setting_reaches_every_dropout(tmp_path: Path) -> None:
    model = tiny_bert(dropout=0.0)
    dropouts = [module for module in model.modules() if isinstance(module, nn.Dropout)]
    seen: set[float] = set()
    model.register_forward_pre_hook(lambda *_: seen.update(module.p for module in dropouts))
    trained(load_recipe("rose-first", {"selection.dropout": 0.25}), tmp_path, model=model, max_steps=1)
    assert seen == {0.25}
    assert {module.p for module in dropouts} == {0.0}, "the model comes back as it was"


def test_the_dropout_setting_reaches_a_dropout_that_is_a_whole_number() -> None:
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    model = LlamaForSequenceClassification(LlamaConfig(vocab_size=50, attention_dropout=0, pad_token_id=0, **sizes))
    DropoutSetting(model, 0.1)
    assert model.model.layers[0].self_attn.attention_dropout == 0.1


def test_the_dropout_setting_is_not_for_skipping_layers() -> None:
    sizes = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2}
    sizes |= {"decoder_attention_heads": 2, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}
    model = BartForSequenceClassification(BartConfig(vocab_size=50, dropout=0.0, **sizes))
    assert not has_dropout(model)
    DropoutSetting(model, 0.1)
    assert has_dropout(model)
    assert model.model.encoder.layerdrop == 0.0
    assert model.model.encoder.layers[0].dropout == 0.1


def test_a_model_without_any_place_for_dropout_is_refused() -> None:
    model = nn.Module()
    model.layers = nn.ModuleList([nn.Linear(2, 2)])
    with pytest.raises(RecipeError, match="dropout"):
        load_recipe("rose-first", {"selection.dropout": 0.1}).check_model(model)


class Detour(nn.Module):
    """A tiny BERT with an extra block that joins at the third forward pass, and one that never does."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = tiny_bert()
        self.late = nn.ModuleList([nn.Linear(2, 2, dtype=torch.float64)])
        self.unused = nn.ModuleList([nn.Linear(2, 2, dtype=torch.float64)])
        self.calls = 0

    def forward(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor) -> dict[str, Tensor]:
        self.calls += 1
        logits = self.inner(input_ids=input_ids, attention_mask=attention_mask).logits
        if self.calls > 2:
            logits = logits + self.late[0](logits)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


@pytest.mark.parametrize("level", ["tensor", "element"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_parameters_that_join_late_or_never(variant: str, level: str, tmp_path: Path) -> None:
    model = Detour()
    before = weights(model)
    recipe = load_recipe(
        f"rose-{variant}", {"selection.keep_quantile": 0.3, "objective.passes": 1, "selection.level": level}
    )
    trainer = trained(recipe, tmp_path, model=model, max_steps=5)
    moved = set(differing(before, weights(model)))
    assert not [name for name in moved if name.startswith("unused")]
    assert not [name for masks in trainer.masks for name in masks if name.startswith("unused")]
    joined = next(masks for masks in trainer.masks if "late.0.weight" in masks)
    if variant == "second":
        assert torch.as_tensor(joined["late.0.weight"]).eq(1).all(), "no momentum yet: free to move"
    assert {"late.0.bias", "inner.classifier.weight"} <= moved


@pytest.mark.parametrize("variant", VARIANTS)
def test_candidates_that_never_get_a_gradient_do_not_stop_training(variant: str, tmp_path: Path) -> None:
    recipe = load_recipe(f"rose-{variant}", {"selection.parameters": "^unused"})
    assert trained(recipe, tmp_path, model=Detour(), max_steps=2).state.global_step == 2


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("level", ["tensor", "element"])
def test_without_clipping(variant: str, level: str, tmp_path: Path) -> None:
    recipe = load_recipe(f"rose-{variant}", {"selection.level": level})
    off, loose = (trained(recipe, tmp_path, max_steps=4, max_grad_norm=norm) for norm in (0.0, 1e9))
    assert not list(differing(weights(off.model), weights(loose.model)))


def scaled_run(recipe: Any, directory: Path, scale: float = 2.0**10, **settings: Any) -> Recording:
    trainer = Recording(
        model=tiny_bert(),
        args=arguments(directory, **settings),
        train_dataset=TinyData(size=settings.get("max_steps", 6) * 4),
        recipe=recipe,
    )
    scale_loss(trainer, scale)
    return trainer


@pytest.mark.parametrize("scale_probe", [True, False])
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_loss_scale_changes_nothing(variant: str, scale_probe: bool, tmp_path: Path) -> None:
    recipe = load_recipe(f"rose-{variant}", {"selection.scale_probe": scale_probe})
    plain = trained(recipe, tmp_path, data=TinyData(size=24), max_steps=6, max_grad_norm=0.1)
    scaled = scaled_run(recipe, tmp_path, max_steps=6, max_grad_norm=0.1)
    scaled.train()
    assert plain.masks == scaled.masks
    assert not list(differing(weights(plain.model), weights(scaled.model)))


@pytest.mark.parametrize("scale_probe", [True, False])
def test_only_a_scaled_probe_escapes_underflow(scale_probe: bool, tmp_path: Path) -> None:
    """fp16 is imitated by flushing small gradients to zero inside the divergence's backward."""

    original = rose_module.symmetric_kl
    recipe = load_recipe("rose-first", {"selection.scale_probe": scale_probe})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rose_module, "symmetric_kl", lambda *args: Flushed.apply(original(*args)))
        trainer = scaled_run(recipe, tmp_path, max_steps=1)
        trainer.train()
    kept = sum(trainer.masks[0].values())
    assert kept == (10 if scale_probe else 16), "tied zeros keep all 16 candidates, 0.6 of 16 is 10"


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_step_that_the_scaler_skips_never_happened(variant: str, tmp_path: Path) -> None:
    steps, skipped = 6, 2
    trainer = scaled_run(f"rose-{variant}", tmp_path, max_steps=steps, gradient_accumulation_steps=1)
    overflow_in(trainer, {skipped})
    trainer.train()
    assert len(trainer.masks) == steps - 1

    model = tiny_bert().train()
    names = [name for name, _ in model.named_parameters()]
    oracle = Oracle(model, Settings(variant, steps), bert_candidates(names), undecayed(names))
    for index, (state, batch) in enumerate(trainer.micro_batches):
        torch.set_rng_state(state)
        if index != skipped:
            oracle.step([batch])
    assert trainer.masks == [{n: pytest.approx(v) for n, v in masks.items()} for masks in oracle.masks]
    expected = weights(model)
    for name, weight in weights(trainer.model).items():
        torch.testing.assert_close(weight, expected[name], rtol=0, atol=1e-9)
    parameter = trainer.model.classifier.weight
    assert int(trainer.optimizer.state[parameter]["step"]) == steps - 1


def test_a_skipped_step_leaves_no_terms_behind(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    trainer = scaled_run("rose-first", tmp_path, max_steps=4)
    trainer.history.path = path
    hook = trainer.model.classifier.bias.register_hook(lambda g: g * torch.inf if trainer.state.global_step == 1 else g)
    trainer.train()
    hook.remove()
    losses = {record["step"]: record["terms"]["ce"] for record in map(json.loads, path.read_text().splitlines())}
    assert set(losses) == {1, 3, 4}
    assert losses[3] < 1.2, "the mean cross-entropy of one step, not the sum of two"


def test_a_step_that_the_scaler_skips_leaves_no_trace_in_a_recipe_with_a_stock_optimiser(tmp_path: Path) -> None:
    """A fused kernel would be called for the skipped step too, and RoAST would add infinities to its importances."""
    recipe = build_recipe({"name": "roast only", "selection": "roast"})
    trainer = scaled_run(recipe, tmp_path, max_steps=4, gradient_accumulation_steps=1, optim="adamw_torch_fused")

    def overflow(gradient: Tensor) -> Tensor:
        return gradient * torch.inf if trainer.state.global_step == 1 else gradient

    next(trainer.model.bert.encoder.layer.parameters()).register_hook(overflow)
    trainer.train()
    assert trainer._engine is not None
    assert trainer._engine.state_dict()["selection.importance"].isfinite().all()
    parameter = trainer.model.classifier.weight
    assert int(trainer.optimizer.state[parameter]["step"]) == 3
