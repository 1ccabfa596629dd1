"""A model that does not learn is reported while it trains, with what to change; one that learns is not."""

from __future__ import annotations

import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest

from rosewood.data.loading import task_from_files
from rosewood.recipe import load_recipe
from rosewood.results import Metrics, RunInfo
from rosewood.training.callbacks import WarnsOfGuessing
from rosewood.training.run import Plan, start_run
from tiny_text import save_tiny_checkpoint


def plan_for(tmp_path: Path, good: str, bad: str, rate: float, recipe: str = "vanilla") -> Plan:
    """Twice as many texts have the one word as the other; where the two are the same, there is nothing to learn."""
    files = {}
    for split, rows in (("train", 96), ("eval", 48)):
        lines = [f"{good if i % 3 else bad} film,{int(i % 3 > 0)}" for i in range(rows)]
        files[split] = tmp_path / f"{split}.csv"
        files[split].write_text("\n".join(["text,label", *lines]) + "\n", encoding="utf-8")
    task = task_from_files(files["train"], files["eval"], text_columns=["text"], label_column="label")
    return Plan(
        recipe=load_recipe(recipe),
        task=task,
        model=str(save_tiny_checkpoint(tmp_path / "tiny")),
        max_length=16,
        arguments={"num_train_epochs": 6.0, "per_device_train_batch_size": 8, "learning_rate": rate},
    )


def said(plan: Plan, output: Path) -> list[str]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        start_run(plan, output)
    return [str(each.message) for each in found if "guessing" in str(each.message) or "answer" in str(each.message)]


def test_each_sign_is_warned_of_once(tmp_path: Path) -> None:
    messages = said(plan_for(tmp_path, "good", "good", rate=1e-3), tmp_path / "run")
    assert len(messages) == 2, messages
    answers, loss = sorted(messages)
    assert answers.startswith("every validation example gets the same answer after 24 of 72 steps: accuracy is 66.7%")
    assert ", and 66.7% of the examples have the most frequent label" in answers
    assert loss.startswith("the training loss is no better than guessing: after 30 of 72 steps ")
    assert ", and label frequencies alone give 0.637." in loss
    assert all("Change the learning rate (0.001 now;" in each for each in messages)
    metrics = Metrics.load(tmp_path / "run" / "metrics.json")
    assert metrics.validation_majority == pytest.approx(2 / 3) and metrics.at_guessing is True


def test_what_disturbs_training_is_named(tmp_path: Path) -> None:
    plan = plan_for(tmp_path, "good", "bad", rate=1e-9, recipe="freelb")
    assert any("perturbation.radius=0.4, perturbation.step_size=0.1" in each for each in said(plan, tmp_path / "run"))


@pytest.mark.parametrize(("early", "expected"), [(0.1, [20]), (0.5, [50]), (1.0, [100])])
def test_the_share_of_steps_without_learning_is_a_setting(early: float, expected: list[int]) -> None:
    watch = WarnsOfGuessing(0.69, load_recipe("vanilla"), early)
    said_at = []
    for step in (10, 20, 50, 70, 100):
        state = SimpleNamespace(global_step=step, max_steps=100, is_world_process_zero=True)
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            watch.on_log(SimpleNamespace(learning_rate=1e-4), state, None, {"loss_ce": 0.1 if step == 10 else 0.7})
        said_at += [step for _ in found]
    assert said_at == expected


@pytest.mark.parametrize(
    ("recipe", "advice"),
    [
        ("adv-base", "take the variant adv-base:gentle; let the weight rise, --set "),
        ("adv-base", "'objective.divergence_weight={to: 10, over: 0.5}'; lower objective.divergence_weight=10"),
        ("adv-base:gentle", "or disturb the model less: lower objective.divergence_weight=1, perturbation.steps=3."),
        ("augment", "or disturb the model less: let the weight rise, --set 'objective.divergence_weight={to: 1, "),
        ("vanilla", "lower if it jumps) or train for more epochs."),
    ],
)
def test_the_advice_names_a_gentle_variant_and_a_ramp(recipe: str, advice: str) -> None:
    assert advice in WarnsOfGuessing(0.69, load_recipe(recipe))._advice(1e-4)


def test_a_model_that_learns_is_left_in_peace(tmp_path: Path) -> None:
    assert said(plan_for(tmp_path, "good", "bad", rate=1e-2), tmp_path / "run") == []
    metrics = Metrics.load(tmp_path / "run" / "metrics.json")
    assert metrics.at_guessing is False and metrics.validation_accuracy == 1.0
    assert RunInfo.load(tmp_path / "run" / "run.json").examples == {"train": 96, "validation": 48}
