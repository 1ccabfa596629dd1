"""Anchors on a LoRA model: the pre-trained self is the model with its adapter off."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from replay import Batch, replay, same_weights
from rosewood.anchors.bregman import Bregman
from rosewood.anchors.l2_sp import L2SP, squared_product_norm
from rosewood.anchors.mixout import Mixout, MixoutTether
from rosewood.errors import RecipeError, RunError
from rosewood.protocol import Progress, Run
from rosewood.recipe import load_recipe
from rosewood.training.trainer import RobustTrainer
from tiny import TinyData, arguments, tiny_bert, trained, weights
from tiny_lora import moved, tiny_lora

AT = Progress(3, 10, micro_batch=1)
EVERYTHING: dict[str, Any] = {
    # An adapter on the embeddings, trained biases, and a part of the base model that is trained as a whole.
    "target_modules": ["word_embeddings", "query", "dense"],
    "exclude_modules": r".*pooler.*",
    "modules_to_save": ["pooler"],
    "bias": "all",
}


def run_of(model: nn.Module) -> Run:
    return Run(model, 10, load_recipe("wconsol").all_stages()[0], 0, weights(model))


def adapted_layers(model: nn.Module) -> dict[str, Any]:
    return {name: module for name, module in model.named_modules() if hasattr(module, "get_delta_weight")}


def slow_distance(model: nn.Module, start: dict[str, Tensor], anchor: L2SP) -> Tensor:
    """Forms every change of a weight as a whole matrix."""
    total = torch.zeros((), dtype=torch.float64)
    for layer in adapted_layers(model).values():
        total = total + (layer.get_delta_weight("default") ** 2).sum()
    for name, parameter in model.named_parameters():
        whole = parameter.requires_grad and ".lora_" not in name and "classifier" not in name
        if whole and (anchor.parameters == "all" or parameter.dim() > 1):
            total = total + ((parameter - start[name]) ** 2).sum()
    return total if anchor.norm == "squared" else (1e-10 + total).sqrt()


@pytest.mark.parametrize("adapter", [{}, EVERYTHING, {"use_rslora": True}], ids=["plain", "everything", "rslora"])
@pytest.mark.parametrize("which", ["matrices", "all"])
@pytest.mark.parametrize("norm", ["squared", "unsquared"])
def test_l2_sp_is_the_distance_of_the_effective_weights(norm: Any, which: Any, adapter: dict[str, Any]) -> None:
    model = tiny_lora(**adapter)
    anchor, start = L2SP(norm=norm, parameters=which), weights(model)
    tether = anchor.start(run_of(model))
    moved(model)
    (term,) = tether.weight_terms(AT)
    expected = slow_distance(model, start, anchor)
    torch.testing.assert_close(term.value, expected, rtol=1e-12, atol=0)
    term.value.backward()
    found = {name: p.grad for name, p in model.named_parameters()}
    model.zero_grad()
    slow_distance(model, start, anchor).backward()
    for name, parameter in model.named_parameters():
        assert (found[name] is None) == (parameter.grad is None), name
        if parameter.grad is not None:
            torch.testing.assert_close(found[name], parameter.grad, rtol=1e-11, atol=1e-14)


def test_l2_sp_is_the_distance_between_the_merged_model_and_the_pretrained_one() -> None:
    model = tiny_lora()
    tether = L2SP().start(run_of(model))
    (term,) = tether.weight_terms(AT)
    assert term.value.item() == 0
    moved(model)
    (term,) = tether.weight_terms(AT)
    merged, pretrained = weights(model.merge_and_unload()), weights(tiny_bert())
    changes = [((merged[name] - pretrained[name]) ** 2).sum() for name in pretrained if name.startswith("bert.")]
    assert term.value.item() == pytest.approx(sum(map(float, changes)), rel=1e-9)


@pytest.mark.parametrize("recipe", ["wconsol", "ptwd"])
def test_l2_sp_in_a_training_run(recipe: str, tmp_path: Path) -> None:
    built = load_recipe(recipe, {"anchors.0.weight": 0.3})
    trainer = trained(built, tmp_path, model=moved(tiny_lora()), data=TinyData(24), max_steps=6)
    model = moved(tiny_lora())
    start = weights(model)

    def backward(batch: Batch, step: int, micro_batch: int) -> None:
        model(**batch).loss.backward()

    def penalise() -> None:
        (0.3 * slow_distance(model, start, built.anchors[0])).backward()

    same_weights(trainer.model, replay(trainer, model, backward, penalise))


def test_the_product_of_half_precision_factors_is_summed_in_single_precision() -> None:
    up, down = torch.full((300, 2), 8.0).half(), torch.full((2, 300), 8.0).half()
    assert squared_product_norm(up, down).item() == pytest.approx(300 * 300 * 128**2)


def mixed(model: nn.Module, **settings: Any) -> MixoutTether:
    return Mixout(**settings).start(run_of(model))


def all_put_back(tether: MixoutTether) -> AbstractContextManager[None]:
    """A micro-batch for which every k happens to be 0."""
    tether._draw = lambda at: torch._foreach_zero_(tether._drawn)  # type: ignore[method-assign]
    return tether.around(AT)


def effective(model: nn.Module) -> dict[str, Tensor]:
    """W0 + s B A of every adapted layer."""
    layers = adapted_layers(model).items()
    return {n: (m.get_base_layer().weight + m.get_delta_weight("default")).detach().clone() for n, m in layers}


@pytest.mark.parametrize("level", ["element", "input_neuron"])
def test_mixout_has_the_pretrained_model_at_one_end_and_the_trained_one_at_the_other(level: Any) -> None:
    model = tiny_lora(**EVERYTHING)
    pretrained = effective(model)
    tethers = {p: mixed(model, probability=p, level=level) for p in (0.0, 0.99)}
    moved(model)
    trained_weights = effective(model)
    with tethers[0.0].around(AT):
        assert all(torch.equal(weight, trained_weights[name]) for name, weight in effective(model).items())
    with all_put_back(tethers[0.99]):
        assert all(torch.equal(weight, pretrained[name]) for name, weight in effective(model).items())
    assert all(torch.equal(weight, trained_weights[name]) for name, weight in effective(model).items())


@pytest.mark.parametrize("level", ["element", "input_neuron"])
def test_the_mean_over_masks_is_the_effective_weight(level: Any) -> None:
    model = tiny_lora()
    tether = mixed(model, probability=0.5, level=level)
    moved(model)
    expected = effective(model)
    sums = {name: torch.zeros_like(weight) for name, weight in expected.items()}
    draws = 400
    for step in range(draws):
        with tether.around(Progress(step, draws)):
            for name, weight in effective(model).items():
                sums[name] += weight / draws
    changes = {n: m.get_delta_weight("default").detach().abs().max() for n, m in adapted_layers(model).items()}
    for name, mean in sums.items():
        # Five standard errors of a change that is there or not.
        assert (mean - expected[name]).abs().max() < 5 * changes[name] / draws**0.5


def test_input_neurons_are_masked_as_the_original_masks_the_whole_matrix() -> None:
    model = tiny_lora()
    tether = mixed(model, probability=0.5, level="input_neuron", scope="linear")
    moved(model)
    before = {name: m.get_delta_weight("default").detach().clone() for name, m in adapted_layers(model).items()}
    seen = set()
    with tether.around(AT):
        for name, layer in adapted_layers(model).items():
            ratio = layer.get_delta_weight("default").detach() / before[name]  # (outputs, inputs)
            torch.testing.assert_close(ratio, ratio[:1].expand_as(ratio))
            seen |= {round(value, 9) for value in ratio[0].tolist()}
    assert seen == {0.0, 2.0}


def test_the_gradient_through_mixout_is_k_times_that_of_the_mixed_factor(tmp_path: Path) -> None:
    built = load_recipe("mixout", {"anchors.0.probability": 0.5})
    trainer = trained(built, tmp_path, model=moved(tiny_lora()), data=TinyData(24), max_steps=6)
    model = moved(tiny_lora())
    twin = moved(tiny_lora())
    tether = mixed(twin, probability=0.5)
    ups = [name for name in tether.names if ".lora_B." in name]
    assert ups == tether.names

    def backward(batch: Batch, step: int, micro_batch: int) -> None:
        twin.load_state_dict(model.state_dict())
        k = {}
        with tether.around(Progress(step, 6, micro_batch=micro_batch)):
            for name in ups:
                weight = dict(twin.named_parameters())[name].detach()
                k[name] = torch.where(weight == 0, 0.0, 2.0)
        changed = {name: k[name] * p for name, p in model.named_parameters() if name in k}
        torch.func.functional_call(model, changed, kwargs=batch).loss.backward()

    same_weights(trainer.model, replay(trainer, model, backward))


def test_the_teacher_of_bregman_copies_the_adapter_only() -> None:
    model = tiny_lora()
    copied = Bregman().start(run_of(model)).state_dict()
    assert set(copied) == {name for name, parameter in model.named_parameters() if parameter.requires_grad}


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("wconsol", {"use_dora": True}, "plain LoRA takes the weights"),
    ("wconsol", {"init_lora_weights": "olora"}, "use init_lora_weights=True"),
    ("mixout", {"init_lora_weights": "olora"}, "anchor mixout needs the pre-trained weights"),
]


@pytest.mark.parametrize(("recipe", "adapter", "words"), REFUSED)
def test_what_is_not_known_is_refused(recipe: str, adapter: dict[str, Any], words: str, tmp_path: Path) -> None:
    model = tiny_lora(dtype=torch.float32, **adapter)
    with pytest.raises(RecipeError, match=words):
        RobustTrainer(model=model, args=arguments(tmp_path), recipe=recipe)


def test_mixout_puts_dora_back_to_the_pretrained_weights() -> None:
    model = tiny_lora(use_dora=True)
    ids = TinyData().ids
    pretrained = model.eval()(input_ids=ids).logits
    tether = mixed(model, probability=0.99)
    head = {name: p.detach().clone() for name, p in model.named_parameters() if "classifier" in name}
    moved(model)
    model.load_state_dict(head, strict=False)
    assert not torch.allclose(model(input_ids=ids).logits, pretrained)
    with all_put_back(tether):
        torch.testing.assert_close(model(input_ids=ids).logits, pretrained)


@pytest.mark.parametrize("recipe", ["wconsol", "mixout"])
def test_a_checkpoint_on_another_base_model_is_noticed(recipe: str, tmp_path: Path) -> None:
    trained(recipe, tmp_path, model=tiny_lora(), save_strategy="steps", save_steps=5)
    with pytest.raises(RunError, match="started from other pre-trained weights"):
        trained(recipe, tmp_path, model=tiny_lora(seed=7), resume=str(tmp_path / "checkpoint-5"))
