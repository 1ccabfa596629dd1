"""FSDP2 around a run: checkpoints, weights that only the first process has loaded, and what is refused."""

from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from torch import Tensor

from rosewood.errors import RecipeError, RunError
from rosewood.recipe import load_recipe
from rosewood.tensors.shards import whole
from rosewood.training.trainer import RobustTrainer
from sharded import SHARDED, allow_fsdp_on_cpu
from tiny import Recording, TinyData, arguments, tiny_bert, trained
from two_processes import in_two_processes

RESUMED: dict[str, Any] = {
    "rose-ensemble": load_recipe("rose-ensemble"),
    "roast": load_recipe("roast"),
    "child-tuning-d": load_recipe("child-tuning-d"),
    "smart and mixout": load_recipe("smart", {"anchors": ["bregman", "mixout"]}),
}
ANCHORED = ["wconsol", "mixout"]


def final(run: Recording) -> dict[str, Tensor]:
    return {name: whole(parameter).clone() for name, parameter in run.model.named_parameters()}


def whole_and_resumed(rank: int, folder: Path) -> dict[str, Any]:
    allow_fsdp_on_cpu()
    found: dict[str, Any] = {}
    settings: dict[str, Any] = SHARDED | {"save_strategy": "steps", "save_steps": 4, "max_steps": 6}
    for name, recipe in RESUMED.items():
        for resume in (None, str(folder / name / "checkpoint-4")):
            run = trained(recipe, folder / name, model=tiny_bert(), data=TinyData(size=24), resume=resume, **settings)
            found.setdefault(name, []).append(final(run))
    return found


def test_resumed_is_uninterrupted(tmp_path: Path) -> None:
    for found in in_two_processes(whole_and_resumed, tmp_path, tmp_path):
        for name, (expected, resumed) in found.items():
            assert all(torch.equal(weight, resumed[key]) for key, weight in expected.items()), name


def first_loads(rank: int, folder: Path) -> dict[str, Any]:
    """Only the first process has the pre-trained weights."""
    allow_fsdp_on_cpu()
    config = SHARDED["fsdp_config"] | {"cpu_ram_efficient_loading": True}
    found = {}
    for name in ANCHORED:
        model = tiny_bert(dropout=0.0, seed=rank)
        settings = {"max_steps": 4, "fsdp": True, "fsdp_config": dict(config)}
        found[name] = final(trained(name, folder / f"out{rank}", model=model, **settings))
    return found


def test_the_first_process_has_the_pretrained_weights(tmp_path: Path) -> None:
    ranks = in_two_processes(first_loads, tmp_path, tmp_path)
    for name in ANCHORED:
        alone = final(trained(name, tmp_path, model=tiny_bert(dropout=0.0), max_steps=4, per_device_train_batch_size=8))
        for found in ranks:
            for key, weight in found[name].items():
                torch.testing.assert_close(weight, alone[key], rtol=0, atol=1e-6, msg=f"{name}: {key}")


class UnderDeepSpeed(RobustTrainer):
    """Believes that DeepSpeed is there."""

    def create_accelerator_and_postprocess(self) -> None:
        super().create_accelerator_and_postprocess()
        self.is_deepspeed_enabled = True


@pytest.mark.parametrize(
    ("recipe", "needy"),
    [
        ("rose-ensemble", "selection rose"),
        ("child-tuning-f", "selection child_tuning"),
        ("lp-ft", "selection linear_probe"),
        ("freelb", "objective adversarial_path"),
        ("advweight", "objective consistency"),
        ("smart", "anchor bregman"),
        ("wconsol", "anchor l2_sp"),
        ("mixout", "anchor mixout"),
    ],
)
def test_deepspeed_keeps_single_gradients_to_itself(recipe: str, needy: str, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=f"recipe {recipe}: {needy} must read or change .* use FSDP2"):
        UnderDeepSpeed(model=tiny_bert(), args=arguments(tmp_path), recipe=recipe)


@pytest.mark.parametrize("recipe", ["vanilla", "r-drop", "r3f", "worddrop", "hiddencut", "advembed"])
def test_deepspeed_may_run_a_single_backward(recipe: str, tmp_path: Path) -> None:
    trainer = UnderDeepSpeed(model=tiny_bert(), args=arguments(tmp_path), recipe=recipe)
    asked: list[dict[str, Any]] = []
    trainer.accelerator.backward = lambda loss, **options: asked.append(options)  # type: ignore[method-assign]
    trainer._backward(torch.zeros(()))
    assert asked == [{"scale_wrt_gas": False}]


def test_the_first_version_of_fsdp_is_refused(tmp_path: Path) -> None:
    class UnderFirstVersion(RobustTrainer):
        def create_accelerator_and_postprocess(self) -> None:
            super().create_accelerator_and_postprocess()
            self.is_fsdp_enabled = True

    with pytest.raises(RunError, match="knows version 2"):
        UnderFirstVersion(model=tiny_bert(), args=arguments(tmp_path))


def test_a_compiled_model_is_not_divided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Divided(RobustTrainer):
        def create_accelerator_and_postprocess(self) -> None:
            super().create_accelerator_and_postprocess()
            self.is_fsdp_enabled = True

    monkeypatch.setattr(Accelerator, "is_fsdp2", property(lambda self: True))
    compiled = arguments(tmp_path)
    compiled.torch_compile = True  # afterwards: at the start it would set the environment for all other tests
    with pytest.raises(RunError, match="FSDP and torch_compile together"):
        Divided(model=tiny_bert(), args=compiled)


def test_fsdp_is_a_setting_like_any_other() -> None:
    settings = {"training.fsdp": True, "training.fsdp_config": {"transformer_layer_cls_to_wrap": ["BertLayer"]}}
    assert load_recipe("vanilla", settings).training["fsdp"] is True
