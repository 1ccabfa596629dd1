"""Anchors of a model that was fine-tuned before: they tie it to the pre-trained model, not to where it starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rosewood.anchors.l2_sp import L2SP
from rosewood.anchors.mixout import Mixout, MixoutTether
from rosewood.config.registry import component_names
from rosewood.errors import RunError
from rosewood.models.parameters import values_in
from rosewood.protocol import Progress, Run
from rosewood.recipe import build_recipe, load_recipe
from rosewood.training.trainer import RobustTrainer
from tiny import TinyData, arguments, differing, tiny_bert, weights
from tiny_lora import moved, tiny_lora

AT = Progress(3, 10, micro_batch=1)
SETTINGS: dict[str, dict[str, Any]] = {"informative": {"own_pass": False}, "mixout": {"probability": 0.5}}
EVERYTHING: dict[str, Any] = {
    "target_modules": ["word_embeddings", "query", "dense"],
    "exclude_modules": r".*pooler.*",
    "modules_to_save": ["pooler"],
    "bias": "all",
}


def base() -> nn.Module:
    return tiny_bert(seed=7)


def trainer(anchor: str, directory: Path, model: nn.Module, **settings: Any) -> RobustTrainer:
    recipe = build_recipe({"anchors": [{"name": anchor, **SETTINGS.get(anchor, {})}]})
    own = {key: settings.pop(key) for key in ("pretrained",) if key in settings}
    args = arguments(directory, max_steps=4, **settings)
    return RobustTrainer(model=model, args=args, recipe=recipe, train_dataset=TinyData(16), **own)


@pytest.mark.parametrize("anchor", component_names("anchor"))
def test_an_anchor_takes_the_pretrained_model_for_the_weights_as_they_came(anchor: str, tmp_path: Path) -> None:
    """The oracle gets the pre-trained model, and the fine-tuned weights only when its anchor has looked."""
    fine_tuned = tiny_bert(seed=1).state_dict()
    expected = trainer(anchor, tmp_path / "a", base())
    expected.model.load_state_dict(fine_tuned)
    expected.train()
    found = trainer(anchor, tmp_path / "b", tiny_bert(seed=1), pretrained=base())
    found.train()
    assert not list(differing(weights(expected.model), weights(found.model)))
    plain = trainer(anchor, tmp_path / "c", tiny_bert(seed=1))
    plain.train()
    says_nothing = not any(each.needs_pretrained for each in found.recipe.anchors)
    assert (not list(differing(weights(plain.model), weights(found.model)))) is says_nothing


@pytest.mark.parametrize("lora", [False, True], ids=["whole", "lora"])
@pytest.mark.parametrize("anchor", component_names("anchor"))
def test_a_resumed_run_is_an_uninterrupted_one(anchor: str, lora: bool, tmp_path: Path) -> None:
    def model() -> nn.Module:
        return tiny_lora(seed=1) if lora else tiny_bert(seed=1)

    whole = trainer(anchor, tmp_path / "a", model(), pretrained=base(), save_strategy="steps", save_steps=3)
    whole.train()
    resumed = trainer(anchor, tmp_path / "b", model(), pretrained=base())
    resumed.train(resume_from_checkpoint=str(tmp_path / "a" / "checkpoint-3"))
    assert not list(differing(weights(whole.model), weights(resumed.model)))
    if any(each.needs_pretrained for each in whole.recipe.anchors):
        other = trainer(anchor, tmp_path / "c", model(), pretrained=tiny_bert(seed=8))
        with pytest.raises(RunError, match="started from other pre-trained weights"):
            other.train(resume_from_checkpoint=str(tmp_path / "a" / "checkpoint-3"))


def run_of(model: nn.Module) -> Run:
    """Beside a pre-trained model that is somewhere else."""
    other = values_in(model, base().base_model.state_dict())  # type: ignore[union-attr, operator]
    start = {name: p.detach().clone() for name, p in model.named_parameters() if p.requires_grad}
    pretrained = start | {name: value for name, value in other.items() if name in start}
    frozen = {name: value for name, value in other.items() if name not in start}
    return Run(model, 10, load_recipe("wconsol").all_stages()[0], 0, pretrained, frozen=frozen)


def effective(model: nn.Module) -> dict[str, Tensor]:
    """The weights of the encoder with the adapter merged into them, as a plain model calls them."""
    found: dict[str, Tensor] = {}
    layers = {name: module for name, module in model.named_modules() if hasattr(module, "get_delta_weight")}
    for name, parameter in model.named_parameters():
        if ".lora_" in name or ".original_module." in name:
            continue
        layer = layers.get(name.removesuffix(".base_layer.weight"))
        value = parameter if layer is None else parameter + layer.get_delta_weight("default")
        for wrapper in ("base_model.model.", ".base_layer", ".modules_to_save.default"):
            wrapped = name.replace(wrapper, "")
            name = wrapped
        found[name] = value
    return {name: value for name, value in found.items() if name.startswith("bert.")}


def slow_distance(model: nn.Module, anchor: L2SP) -> Tensor:
    before = dict(base().named_parameters())
    squares = [
        ((value - before[name]) ** 2).sum()
        for name, value in effective(model).items()
        if anchor.parameters == "all" or value.dim() > 1
    ]
    total = torch.stack(squares).sum()
    return total if anchor.norm == "squared" else (1e-10 + total).sqrt()


@pytest.mark.parametrize("adapter", [{}, EVERYTHING], ids=["plain", "everything"])
@pytest.mark.parametrize("which", ["matrices", "all"])
@pytest.mark.parametrize("norm", ["squared", "unsquared"])
def test_l2_sp_is_the_distance_of_the_effective_weights(norm: Any, which: Any, adapter: dict[str, Any]) -> None:
    model, anchor = tiny_lora(seed=1, **adapter), L2SP(norm=norm, parameters=which)
    tether = anchor.start(run_of(model))
    moved(model)
    (term,) = tether.weight_terms(AT)
    torch.testing.assert_close(term.value, slow_distance(model, anchor), rtol=1e-12, atol=0)
    term.value.backward()
    found = {name: p.grad for name, p in model.named_parameters()}
    model.zero_grad()
    slow_distance(model, anchor).backward()
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and "classifier" not in name:
            torch.testing.assert_close(found[name], parameter.grad, rtol=1e-9, atol=1e-12)


def mixed(model: nn.Module, **settings: Any) -> MixoutTether:
    return Mixout(**settings).start(run_of(model))


@pytest.mark.parametrize("adapter", [{}, EVERYTHING], ids=["plain", "everything"])
@pytest.mark.parametrize("scope", ["all", "linear"])
@pytest.mark.parametrize("level", ["element", "input_neuron"])
def test_mixout_mixes_what_is_away_from_its_pretrained_value(level: str, scope: str, adapter: dict[str, Any]) -> None:
    """W~ = W0 + k (W - W0) with k = 0 or 2, also for weights that do not move; those of a factor go to 0."""
    model = moved(tiny_lora(seed=1, **adapter))
    tether, run, before = mixed(model, probability=0.5, level=level, scope=scope), run_of(model), weights(model)
    frozen = {
        name for name in run.frozen if scope == "all" or (run.frozen[name].dim() == 2 and "embeddings" not in name)
    }
    assert {name for name in tether.names if name in run.frozen} == frozen
    zeros, count = 0, 0
    with tether.around(AT), torch.no_grad():
        named = dict(model.named_parameters())
        for name in tether.names:
            k, origin = tether._factors[name], {**run.frozen, **run.pretrained}[name]
            origin = torch.zeros_like(origin) if ".lora_" in name else origin
            torch.testing.assert_close(named[name], origin + k * (before[name] - origin), rtol=1e-12, atol=1e-15)
            assert set(k.unique().tolist()) <= {0.0, 2.0}
            zeros, count = zeros + int((k == 0).sum()), count + k.numel()
    assert 0.4 < zeros / count < 0.6


def test_input_neurons_of_weight_and_adapter_go_back_together() -> None:
    model = moved(tiny_lora(seed=1))
    tether, origin = mixed(model, probability=0.5, level="input_neuron"), dict(base().named_parameters())
    before = {name: value.detach() for name, value in effective(model).items()}
    name = "bert.encoder.layer.0.attention.self.query.weight"
    with tether.around(AT), torch.no_grad():
        ratio = (effective(model)[name] - origin[name]) / (before[name] - origin[name])
    expected = ratio.mean(dim=0, keepdim=True).expand_as(ratio)
    torch.testing.assert_close(ratio, expected, rtol=1e-9, atol=1e-9)
    assert {round(float(k), 6) for k in ratio[0]} == {0.0, 2.0}


@pytest.mark.parametrize("lora", [False, True], ids=["whole", "lora"])
def test_the_informative_teacher_is_the_pretrained_model(lora: bool, tmp_path: Path) -> None:
    model = tiny_lora(seed=1) if lora else tiny_bert(seed=1)
    found = trainer("informative", tmp_path, model, pretrained=base())
    found.train()
    assert found._engine is not None and found._engine._current is not None
    (tether,) = found._engine._current.tethers
    batch = {key: torch.stack([TinyData(16)[i][key] for i in range(4)]) for key in ("input_ids", "attention_mask")}
    with torch.no_grad(), tether._teacher.lent(tether.pretrained):  # type: ignore[attr-defined]
        inside = found.model.get_base_model() if lora else found.model
        pooled = inside.bert(**batch).pooler_output
    with torch.no_grad():
        expected = base().eval().bert(**batch).pooler_output  # type: ignore[union-attr, operator]
    torch.testing.assert_close(pooled, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (lambda: tiny_bert(seed=0, type_vocab_size=5), r"token_type_embeddings.weight has the shape \(5, 16\) there"),
        (lambda: nn.Linear(2, 2), "has no weight in common with the model that is trained"),
    ],
)
def test_a_model_that_does_not_fit_is_refused(other: Any, expected: str, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=expected):
        trainer("mixout", tmp_path, tiny_bert(), pretrained=other())
