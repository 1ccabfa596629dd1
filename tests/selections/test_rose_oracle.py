"""RobustTrainer against the slow transcription of Algorithm 1, in float64."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rose_oracle import CheaperOracle, Oracle, Settings, bert_candidates, undecayed
from rosewood.recipe import load_recipe
from slow_thresholds import slowly_kept
from tiny import Recording, TinyData, tiny_bert, trained

STEPS = 20
VARIANTS = ["first", "second", "ensemble"]
TOLERANCE = {"rtol": 0, "atol": 1e-9}


def compare(
    directory: Path,
    settings: Settings,
    overrides: dict[str, Any],
    accumulation: int = 1,
    oracle_class: Callable[..., Oracle] = Oracle,
    **arguments: Any,
) -> tuple[Recording, Oracle]:
    """Train with the engine, then with the oracle on the same batches and the same dropout draws."""
    trainer = trained(
        load_recipe(f"rose-{settings.variant}", overrides),
        directory,
        data=TinyData(size=4 * accumulation * STEPS),
        max_steps=STEPS,
        gradient_accumulation_steps=accumulation,
        max_grad_norm=settings.clip,
        **arguments,
    )
    model = tiny_bert().train()
    names = [name for name, _ in model.named_parameters()]
    oracle = oracle_class(model, settings, bert_candidates(names), undecayed(names))
    torch.set_rng_state(trainer.micro_batches[0][0])
    batches = [batch for _, batch in trainer.micro_batches]
    for start in range(0, len(batches), accumulation):
        oracle.step(batches[start : start + accumulation])
    assert oracle.t == STEPS
    return trainer, oracle


def agree(trainer: Recording, oracle: Oracle) -> None:
    for theirs, ours in zip(trainer.masks, oracle.masks, strict=True):
        for name in oracle.candidates:
            torch.testing.assert_close(torch.as_tensor(theirs.get(name, 1.0)), torch.as_tensor(ours[name]))
    expected = dict(oracle.model.named_parameters())
    for name, parameter in trainer.model.named_parameters():
        torch.testing.assert_close(parameter, expected[name], **TOLERANCE, msg=lambda text, n=name: f"{n}: {text}")
        state = trainer.optimizer.state[parameter]
        torch.testing.assert_close(state["exp_avg"], oracle.m[name], **TOLERANCE)
        torch.testing.assert_close(state["exp_avg_sq"], oracle.v[name], **TOLERANCE)


@pytest.mark.parametrize("accumulation", [1, 4])
@pytest.mark.parametrize("variant", VARIANTS)
def test_twenty_steps_of_algorithm_1(variant: str, accumulation: int, tmp_path: Path) -> None:
    trainer, oracle = compare(tmp_path, Settings(variant, STEPS), {}, accumulation)
    agree(trainer, oracle)
    assert any(mask < 1 for masks in oracle.masks for mask in masks.values()), "nothing was ever frozen"


@pytest.mark.parametrize("variant", ["second", "ensemble"])
def test_clipping_that_bites(variant: str, tmp_path: Path) -> None:
    trainer, oracle = compare(tmp_path, Settings(variant, STEPS, clip=0.05), {})
    assert min(oracle.norms) > 0.05
    agree(trainer, oracle)


@pytest.mark.parametrize("variant", ["second", "ensemble"])
def test_the_form_of_the_official_code(variant: str, tmp_path: Path) -> None:
    # A large epsilon and decay, so that the two forms are far apart.
    settings = Settings(variant, STEPS, form="hf", epsilon=1e-3, decay=0.5)
    trainer, oracle = compare(
        tmp_path, settings, {"optimizer_form": "hf"}, adam_epsilon=settings.epsilon, weight_decay=settings.decay
    )
    agree(trainer, oracle)


def test_cross_entropy_of_one_pass(tmp_path: Path) -> None:
    agree(*compare(tmp_path, Settings("ensemble", STEPS, passes=1), {"objective.passes": 1}, accumulation=2))


OPTIONS: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ({"count": "floor"}, {"selection.count": "floor"}, {}),
    ({"risk_gradient": "raw", "clip": 0.05}, {"selection.risk_gradient": "raw"}, {}),
    (
        {"first": (0.2, 0.9), "second": (0.1, 0.5), "gamma": 0.3},
        {"selection.first_quantiles": [0.2, 0.9], "selection.second_quantiles": [0.1, 0.5], "selection.gamma": 0.3},
        {},
    ),
    ({"unmasked_steps": 3, "rate_warmup": 3}, {"selection.warmup_steps": 3}, {"warmup_steps": 3}),
    ({"betas": (0.8, 0.98)}, {}, {"adam_beta1": 0.8}),
    ({"level": "element", "gamma": 0.3}, {"selection.level": "element", "selection.gamma": 0.3}, {}),
]


@pytest.mark.parametrize(("oracle", "overrides", "arguments"), OPTIONS, ids=[str(option[0]) for option in OPTIONS])
def test_every_setting(
    oracle: dict[str, Any], overrides: dict[str, Any], arguments: dict[str, Any], tmp_path: Path
) -> None:
    # The ensemble computes both risks, so it sees every setting.
    agree(*compare(tmp_path, Settings("ensemble", STEPS, **oracle), overrides, **arguments))


@pytest.mark.parametrize("variant", ["first", "second"])
def test_elements(variant: str, tmp_path: Path) -> None:
    agree(*compare(tmp_path, Settings(variant, STEPS, level="element"), {"selection.level": "element"}))


@pytest.mark.parametrize("variant", ["second", "ensemble"])
def test_elements_in_the_form_of_the_official_code(variant: str, tmp_path: Path) -> None:
    settings = Settings(variant, STEPS, form="hf", level="element", epsilon=1e-3, decay=0.5)
    overrides = {"optimizer_form": "hf", "selection.level": "element"}
    agree(*compare(tmp_path, settings, overrides, adam_epsilon=settings.epsilon, weight_decay=settings.decay))


# The cheaper first-order risk. Micro-batches have four rows.

CHEAPER: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ({"rows": [0, 2]}, {"probe_fraction": 0.5}, {}),
    ({"rows": [0]}, {"probe_fraction": 0.01}, {}),
    ({"every": 3}, {"probe_every": 3}, {}),
    ({"every": 4}, {"probe_every": 4, "warmup_steps": 3}, {"unmasked_steps": 3}),
    ({"every": 2}, {"probe_every": 2, "level": "element"}, {"level": "element"}),
    ({}, {"risk_sketch": 32}, {}),  # as many directions as outputs: exact
    ({"every": 2, "rows": [0, 1, 2]}, {"probe_every": 2, "probe_fraction": 0.75, "risk_sketch": 99}, {}),
]


@pytest.mark.parametrize(("oracle", "overrides", "plain"), CHEAPER, ids=[str(option[1]) for option in CHEAPER])
def test_cheaper_risks(
    oracle: dict[str, Any], overrides: dict[str, Any], plain: dict[str, Any], tmp_path: Path
) -> None:
    settings = {"objective.passes": 1} | {f"selection.{name}": value for name, value in overrides.items()}
    agree(
        *compare(
            tmp_path,
            Settings("ensemble", STEPS, passes=1, **plain),
            settings,
            accumulation=2,
            oracle_class=partial(CheaperOracle, **oracle),
        )
    )


@pytest.mark.parametrize("accumulation", [1, 4])
def test_a_sketch_of_all_directions_is_exact_in_the_passes_of_the_loss(accumulation: int, tmp_path: Path) -> None:
    agree(*compare(tmp_path, Settings("first", STEPS), {"selection.risk_sketch": 32}, accumulation))


# Thresholds that the risks of a step set by themselves.


@dataclass
class AutomaticOracle(Oracle):
    """Compares the risks with the slow thresholds."""

    rule: str = "otsu"

    def between(self, risks: dict[str, np.ndarray], lower: float, upper: float) -> dict[str, float | Tensor]:
        every = np.concatenate([np.ravel(risk) for risk in risks.values()])
        keep = torch.tensor(slowly_kept(every.tolist(), self.rule), dtype=torch.float64)
        if self.settings.level == "tensor":
            return dict(zip(risks, keep.tolist(), strict=True))
        pieces = keep.split([risk.size for risk in risks.values()])
        return {name: piece.view(risk.shape) for piece, (name, risk) in zip(pieces, risks.items(), strict=True)}


@pytest.mark.parametrize("rule", ["otsu", "outliers", "gap"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_automatic_thresholds(variant: str, rule: str, tmp_path: Path) -> None:
    trainer, oracle = compare(
        tmp_path,
        Settings(variant, STEPS),
        {"selection.keep_quantile": rule},
        oracle_class=partial(AutomaticOracle, rule=rule),
    )
    agree(trainer, oracle)
    assert any(mask < 1 for masks in oracle.masks for mask in masks.values()), "nothing was ever frozen"


def test_automatic_threshold_of_elements(tmp_path: Path) -> None:
    overrides = {"selection.keep_quantile": "outliers", "selection.level": "element"}
    oracle = partial(AutomaticOracle, rule="outliers")
    agree(*compare(tmp_path, Settings("ensemble", STEPS, level="element"), overrides, oracle_class=oracle))
