"""Recipes against slow transcriptions of the published methods, in float64, on padded sentences."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import slow_methods as slow
from replay import replay, same_weights
from rosewood.recipe import load_recipe
from slow_methods import PaddedData, replayed
from tiny import TinyData, tiny_bert, trained, weights

SMART = {
    "objective": {"name": "consistency", "clean_weight": 1, "perturbed_weight": 0, "divergence_weight": 3.0},
    "perturbation": {
        "name": "embedding_ascent",
        "loss": "kl",
        "norm": "sentence_infinity",
        "step_size": 1e-3,
        "initial": "normal",
        "initial_size": 1e-5,
        "radius": 1e-5,
        "through_embeddings": True,
    },
}
Method = Callable[[Any, dict[str, Tensor]], dict[str, Tensor]]
METHODS: dict[str, tuple[str, dict[str, Any], Method]] = {
    "r-drop": ("r-drop", {}, lambda m, b: slow.r_drop(m, b, 0.5, 0.5, 1.0)),
    "r-drop-paper": ("r-drop:paper", {}, lambda m, b: slow.r_drop(m, b, 1, 1, 1.0)),
    "r-drop-hf-roberta": ("r-drop:hf-roberta", {}, lambda m, b: slow.r_drop(m, b, 0.5, 0, 0.7, len(b["labels"]))),
    "r-drop-hf-bert": ("r-drop:hf-bert", {}, lambda m, b: slow.r_drop(m, b, 1, 1, 0.5, len(b["labels"]))),
    "freelb": ("freelb", {}, lambda m, b: slow.freelb(m, b, 2, 0.1, 0.5, 0.4, [])),
    "freelb-rte": ("freelb:rte", {}, lambda m, b: slow.freelb(m, b, 3, 0.06, 0.16, 0.14, [])),
    "advembed": ("advembed", {}, lambda m, b: slow.advembed(m, b, 0.01)),
    "advembed-code": ("advembed:code", {}, lambda m, b: slow.advembed(m, b, 0.01, perturbed=False)),
    "smart": ("vanilla", SMART, lambda m, b: slow.smart(m, b, 3.0, 1e-3, 1e-5, 1e-5, 1)),
    "smart-far": (
        "vanilla",
        SMART | {"perturbation.radius": 1e-2, "perturbation.steps": 2},
        lambda m, b: slow.smart(m, b, 3.0, 1e-3, 1e-5, 1e-2, 2),
    ),
    "smart-mt-dnn": ("smart:mt-dnn", {}, lambda m, b: slow.mt_dnn(m, b, 1.0, 1e-5, 1e-5, 1)),
    "smart-mt-dnn-far": (
        "smart:mt-dnn",
        {"perturbation.steps": 3, "perturbation.step_size": 0.5},  # far enough for the slope to matter
        lambda m, b: slow.mt_dnn(m, b, 1.0, 0.5, 1e-5, 3),
    ),
    "r3f": ("r3f", {}, lambda m, b: slow.r3f(m, b, 0.7, 1e-5)),
    "r3f-far": ("r3f", {"perturbation.radius": 0.5}, lambda m, b: slow.r3f(m, b, 0.7, 0.5)),
    "worddrop": ("worddrop", {}, lambda m, b: slow.worddrop(m, b, 0.1, 0.01)),
    "hiddencut": ("hiddencut", {"perturbation.cut_ratio": 0.4}, lambda m, b: slow.hidden_cut(m, b, 0.4)),
    "sam": ("advweight:sam", {}, lambda m, b: slow.sam(m, b, 0.05)),
    "advweight": ("advweight", {}, lambda m, b: slow.advweight(m, b, 0.05, 0.01)),
}


@pytest.mark.parametrize("name", METHODS)
def test_ten_steps_of_the_published_method(name: str, tmp_path: Path) -> None:
    recipe, overrides, method = METHODS[name]
    trainer = trained(load_recipe(recipe, overrides), tmp_path, data=PaddedData())
    expected = replayed(trainer, method)
    for parameter, weight in weights(trainer.model).items():
        torch.testing.assert_close(
            weight, expected[parameter], rtol=0, atol=1e-9, msg=lambda text, p=parameter: f"{p}: {text}"
        )
    assert any((w - weights(tiny_bert())[n]).abs().max() > 1e-3 for n, w in expected.items())


def test_the_transcription_of_freelb_stays_in_its_ball_and_off_the_padding() -> None:
    deltas: list[Tensor] = []
    batch = torch.utils.data.default_collate([PaddedData()[i] for i in range(4)])
    slow.freelb(tiny_bert(dropout=0.0), batch, 4, 0.3, 0.2, 0.25, deltas)
    norms = [delta.flatten(1).norm(dim=1) for delta in deltas]
    assert all(norm.max() <= 0.25 + 1e-12 for norm in norms)
    assert max(norm.max() for norm in norms) > 0.249
    assert not any(delta[batch["attention_mask"] == 0].any() for delta in deltas)


RESUMED = ["r-drop", "r-drop+rose-ensemble", "freelb", "advembed", "advweight", "r3f", "worddrop", "hiddencut"]


@pytest.mark.parametrize("name", RESUMED)
def test_resumed_is_uninterrupted(name: str, tmp_path: Path) -> None:
    settings = {"save_strategy": "steps", "save_steps": 5, "data": TinyData(size=24), "max_steps": 10}
    whole = trained(name, tmp_path, model=tiny_bert(dtype=torch.float32), **settings)
    other = tiny_bert(dtype=torch.float32, seed=7)
    resumed = trained(name, tmp_path, model=other, resume=str(tmp_path / "checkpoint-5"), **settings)
    expected = weights(whole.model)
    assert all(torch.equal(weight, expected[name]) for name, weight in weights(resumed.model).items())


def test_accumulated_micro_batches_ascend_each_by_its_own_gradient(tmp_path: Path) -> None:
    trainer = trained("advweight:sam", tmp_path, data=TinyData(size=48), max_steps=4, gradient_accumulation_steps=3)
    model = tiny_bert()

    def backward(batch: dict[str, Tensor], step: int, micro_batch: int) -> None:
        parameters = dict(model.named_parameters())
        for name, gradient in slow.sam(model, batch, 0.05).items():
            part, before = gradient / 3, parameters[name].grad
            parameters[name].grad = part if before is None else before + part

    same_weights(trainer.model, replay(trainer, model, backward, accumulation=3))
