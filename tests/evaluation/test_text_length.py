"""A run's text length goes with its model: figures do not depend on whether a run or its model is evaluated."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import BertConfig, BertForSequenceClassification, RobertaConfig, RobertaForSequenceClassification

from rosewood.cli.evaluate import evaluate_one
from rosewood.comparison.table import grids
from rosewood.data.loading import load_split, task_from_files
from rosewood.errors import RunError
from rosewood.evaluation.predict import predict
from rosewood.models.open import load_classifier
from rosewood.models.scoring import Scorer, longest_text, text_length
from rosewood.recipe import load_recipe
from rosewood.training.plan import Plan
from rosewood.training.run import start_run
from tiny_text import save_tiny_checkpoint, tiny_tokenizer

SIZES = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8, "vocab_size": 60}


@pytest.mark.parametrize("length", [12, 200])
def test_a_run_and_its_model_have_the_same_figures_on_long_texts(tmp_path: Path, length: int) -> None:
    """Texts of 100 to 300 letters, each a token: longer and shorter than both lengths, and than the default of 128."""
    rows = [f"{' '.join('abcdefghijk'[i * j % 11] for j in range(100 + 5 * i))},{i % 2}" for i in range(40)]
    (tmp_path / "long.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    task = task_from_files(*[tmp_path / "long.csv"] * 2, text_columns=["text"], test_file=tmp_path / "long.csv")
    save_tiny_checkpoint(tmp_path / "model")
    config = BertConfig.from_pretrained(tmp_path / "model", max_position_embeddings=256, initializer_range=1.0)
    BertForSequenceClassification(config).save_pretrained(tmp_path / "model")
    model, arguments = str(tmp_path / "model"), {"max_steps": 1}
    plan = Plan(recipe=load_recipe("vanilla"), task=task, model=model, max_length=length, arguments=arguments)
    with pytest.warns(UserWarning, match="longer than max_length"):
        start_run(plan, tmp_path / "run")

    said = json.loads((tmp_path / "run" / "model" / "tokenizer_config.json").read_text())["model_max_length"]
    assert said == length
    rest = (None, 40, 64, 0.0, 0)
    evaluations = {
        "run": evaluate_one(str(tmp_path / "run"), None, *rest),
        "model": evaluate_one(str(tmp_path / "run" / "model"), str(tmp_path / "run" / "task.yaml"), *rest),
    }
    assert evaluations["run"].sets == evaluations["model"].sets
    assert evaluations["model"].max_length == length
    assert f"Texts are cut after {length} tokens." in grids(evaluations)[0].caption

    model, tokenizer = load_classifier(str(tmp_path / "run" / "model"))
    data = load_split(task, "test")
    ours, usual = (predict(model, tokenizer, data, ["text"], n) for n in (length, 128))
    assert abs(ours - usual).max() > 0.01, "the length must matter for this test"


def test_every_position_of_a_model_can_be_asked_for() -> None:
    tokenizer, sizes = tiny_tokenizer(), {**SIZES, "max_position_embeddings": 40}
    tokenizer.model_max_length = 10
    bert = BertForSequenceClassification(BertConfig(**sizes))
    roberta = RobertaForSequenceClassification(RobertaConfig(**sizes, pad_token_id=1))
    assert [longest_text(model, tokenizer) for model in (bert, roberta)] == [40, 38]
    assert [text_length(model, tokenizer) for model in (bert, roberta)] == [10, 10]
    Scorer(bert, tokenizer, 40)
    with pytest.raises(RunError, match="max_length 41 is more than the model's 40 tokens"):
        Scorer(bert, tokenizer, 41)
    tokenizer.model_max_length = int(1e30)
    assert text_length(bert, tokenizer) == 40, "no more than there are positions"
