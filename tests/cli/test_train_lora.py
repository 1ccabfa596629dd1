"""rosewood train --lora-rank, from training to evaluation and averaging."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from huggingface_hub import ModelCard
from safetensors.torch import load_file
from transformers import BertModel

from rosewood.models.open import load_classifier
from rosewood.results import RunInfo
from rosewood.training.callbacks import Interrupted, SaveAndStop
from rosewood.training.run import resume_run
from tiny_text import save_tiny_checkpoint, tiny_tokenizer

Rosewood = Callable[..., str]


@pytest.fixture
def words(tmp_path: Path) -> tuple[object, ...]:
    """A training command but for its output."""
    checkpoint = save_tiny_checkpoint(tmp_path / "checkpoint")
    films = tmp_path / "films.csv"
    rows = [f"{'good' if i % 2 else 'bad'} film {chr(97 + i % 26)}{chr(97 + i // 26)},{i % 2}" for i in range(60)]
    films.write_text("\n".join(["text,label", *rows]) + "\n")
    data = ("--train-file", films, "--test-file", films, "--max-length", "16")
    return ("train", "--model", checkpoint, *data, "--batch-size", 8, "--epochs", 1)


def test_train_evaluate_average(rosewood: Rosewood, words: tuple[object, ...], tmp_path: Path) -> None:
    run = tmp_path / "run"
    rosewood(*words, "--recipe", "rose-ensemble", "--lora-rank", 2, "--lora-dropout", 0.1, "--output", run)
    assert {path.name for path in run.iterdir()} == {
        *("model", "adapter", "recipe.yaml", "task.yaml", "run.json", "metrics.json", "history.jsonl")
    }
    info = json.loads((run / "run.json").read_text())
    assert info["lora"] == {"rank": 2, "alpha": 4, "dropout": 0.1, "targets": ["all-linear"]}
    assert info["training_arguments"]["learning_rate"] == 1e-3
    assert info["versions"]["peft"]
    card = ModelCard.load(run / "adapter" / "README.md")
    assert card.data.library_name == "peft" and "rose-ensemble" in card.data.tags and card.data.base_model is None
    assert "recipe **rose-ensemble**. Its outputs are 0, 1." in card.text and "More Information Needed" not in card.text
    assert str(tmp_path) not in str(card)

    adapter, merged = (
        load_file(run / "adapter" / "adapter_model.safetensors"),
        load_file(run / "model/model.safetensors"),
    )
    pretrained = load_file(tmp_path / "checkpoint" / "model.safetensors")
    assert merged.keys() == pretrained.keys()
    changed = {name for name in merged if not torch.equal(merged[name], pretrained[name])}
    layer = "bert.encoder.layer.0.attention.self.query"
    assert f"{layer}.weight" in changed
    assert not any("embeddings" in name or "LayerNorm" in name for name in changed)
    factors = [adapter[f"base_model.model.{layer}.lora_{factor}.weight"] for factor in "BA"]
    change = merged[f"{layer}.weight"] - pretrained[f"{layer}.weight"]
    torch.testing.assert_close(change, 2 * factors[0] @ factors[1], rtol=0, atol=1e-6)

    assert "Robustness on films" in rosewood("evaluate", run)
    both = [load_classifier(str(run / part))[0] for part in ("model", "adapter")]
    ids = torch.tensor([[2, 57, 56, 3]])
    torch.testing.assert_close(both[0](input_ids=ids).logits, both[1](input_ids=ids).logits, rtol=0, atol=1e-5)
    assert both[0].config.id2label == both[1].config.id2label == {0: "0", 1: "1"}
    assert "adapter" in rosewood("evaluate", run / "adapter", "--task", run / "task.yaml")

    wise = tmp_path / "wise"
    rosewood("average", run, "--with-pretrained", 0.5, "--output", wise)
    half = load_file(wise / "model" / "model.safetensors")[f"{layer}.weight"] - pretrained[f"{layer}.weight"]
    torch.testing.assert_close(half, factors[0] @ factors[1], rtol=0, atol=1e-6)
    printed = rosewood("average", run / "adapter", "--with-pretrained", 0.5, "--output", tmp_path / "x", code=1)
    assert "holds an adapter, and only whole weights can be averaged: name the run it belongs to" in printed


def test_an_interrupted_run_resumes_to_the_same_weights(
    rosewood: Rosewood, words: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ("--recipe", "wconsol", "--lora-rank", 2, "--lora-targets", "query", "--lora-targets", "value")
    rosewood(*words, *settings, "--output", tmp_path / "whole")

    def stop(self: SaveAndStop, args: object, state: object, control: object, **_: object) -> None:
        if state.global_step == 3:  # type: ignore[attr-defined]
            control.should_save = True  # type: ignore[attr-defined]
        if state.global_step == 4:  # type: ignore[attr-defined]
            raise Interrupted

    run = tmp_path / "stopped"
    with monkeypatch.context() as patch:
        patch.setattr(SaveAndStop, "on_step_end", stop)
        assert "--resume" in rosewood(*words, *settings, "--output", run, code=130)
    assert (run / "checkpoints" / "checkpoint-3" / "adapter_model.safetensors").exists()
    resume_run(run)
    for file in ("model/model.safetensors", "adapter/adapter_model.safetensors", "history.jsonl"):
        assert (run / file).read_bytes() == (tmp_path / "whole" / file).read_bytes(), file
    assert RunInfo.load(run / "run.json").lora == RunInfo.load(tmp_path / "whole" / "run.json").lora


def test_modules_that_no_checkpoint_has_are_trained_and_kept_as_a_whole(
    rosewood: Rosewood, words: tuple[object, ...], tmp_path: Path
) -> None:
    headless = tmp_path / "headless"
    BertModel.from_pretrained(tmp_path / "checkpoint", add_pooling_layer=False).save_pretrained(headless)
    tiny_tokenizer().save_pretrained(headless)
    rosewood(*words, "--model", headless, "--lora-rank", 2, "--output", tmp_path / "run")
    saved = load_file(tmp_path / "run" / "adapter" / "adapter_model.safetensors")
    assert "base_model.model.bert.pooler.dense.weight" in saved
    assert not any("pooler" in name and "lora" in name for name in saved)
    ids = torch.tensor([[2, 57, 56, 3]])
    logits = [load_classifier(str(tmp_path / "run" / part))[0](input_ids=ids).logits for part in ("model", "adapter")]
    torch.testing.assert_close(*logits, rtol=0, atol=1e-5)


def test_bad_options_are_refused_before_anything_is_written(
    rosewood: Rosewood, words: tuple[object, ...], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    assert "need its rank: add --lora-rank" in rosewood(*words, "--lora-alpha", 8, "--output", run, code=1)
    printed = rosewood(*words, "--lora-rank", 2, "--lora-targets", "qeury", "--output", run, code=1)
    assert "Its linear layers are dense, key, query, value; --lora-targets all-linear takes them all." in printed
    assert not run.exists()
