"""The learning rate: the user's, the recipe's, or else one for the size of the model; a run keeps what it took."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transformers import BertConfig, GPT2Config, PretrainedConfig, T5Config

from rosewood.config.settings import Lora
from rosewood.data.loading import task_from_files
from rosewood.recipe import load_recipe
from rosewood.results import RunInfo
from rosewood.training.plan import default_rate
from rosewood.training.run import Plan, finish_run
from tiny_text import save_tiny_checkpoint


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    rows = [f"{'good' if i % 2 else 'bad'} film {i},{i % 2}" for i in range(40)]
    (tmp_path / "films.csv").write_text("\n".join(["text,label", *rows]) + "\n", encoding="utf-8")
    return Plan(
        recipe=load_recipe("vanilla"),
        task=task_from_files(tmp_path / "films.csv", None, text_columns=["text"], label_column="label"),
        model=str(save_tiny_checkpoint(tmp_path / "tiny")),
        max_length=16,
        arguments={"max_steps": 1, "per_device_train_batch_size": 4},
    )


@pytest.mark.parametrize(
    ("config", "rate"),
    [
        (BertConfig(hidden_size=384), 2e-4),
        (BertConfig(hidden_size=768), 5e-5),
        (GPT2Config(n_embd=768), 5e-5),  # another name for the same
        (T5Config(d_model=512), 5e-5),
        (BertConfig(hidden_size=1024), 2e-5),
        (PretrainedConfig(), 5e-5),  # says nothing of its size
    ],
)
def test_wider_models_take_smaller_steps(config: PretrainedConfig, rate: float) -> None:
    assert default_rate(config) == rate


def test_the_user_comes_before_the_recipe_and_the_recipe_before_the_default(plan: Plan) -> None:
    small = BertConfig(hidden_size=384)
    own = {"learning_rate": 3e-3}
    published = load_recipe("vanilla", {"training": {"learning_rate": 1e-5}})

    def rate(**changes: Any) -> float:
        chosen = plan.model_copy(update=changes).with_rate_for(small)
        return float(chosen.training_arguments()["learning_rate"])

    assert rate() == 2e-4
    assert rate(lora=Lora(rank=2, alpha=4)) == 1e-3
    assert rate(recipe=published) == 1e-5
    assert rate(recipe=published, arguments=own) == 3e-3


def test_a_run_keeps_the_rate_that_it_took_and_is_found_finished(plan: Plan, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert finish_run(plan, run).training_arguments["learning_rate"] == 2e-4
    assert RunInfo.load(run / "run.json").training_arguments["learning_rate"] == 2e-4
    assert finish_run(plan, run).status == "finished"
