"""What docs/tasks.md shows is what runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from tiny import differing, weights
from tiny_text import VOCABULARY, tiny_classifier, tiny_tokenizer

PAGE = (Path(__file__).parent.parent / "docs" / "tasks.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^## ([^\n]+)\n.*?```python\n(.*?)```", PAGE, re.DOTALL | re.MULTILINE)


def save_tiny_encoder(folder: Path) -> Path:
    """Without a head, like every pre-trained model."""
    tiny_classifier().base_model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def save_tiny_language_model(folder: Path) -> Path:
    torch.manual_seed(0)
    sizes = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64}
    GPT2LMHeadModel(GPT2Config(vocab_size=len(VOCABULARY), **sizes)).save_pretrained(folder)
    tokenizer = tiny_tokenizer()
    tokenizer.eos_token = "[SEP]"
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize(("title", "code"), EXAMPLES, ids=[title for title, _ in EXAMPLES])
def test_every_example_runs(title: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As printed, but for the Hub: tiny checkpoints replace what it would download."""
    monkeypatch.chdir(tmp_path)
    stand_ins = {
        "distilbert-base-cased": save_tiny_encoder(tmp_path / "tiny"),
        "distilgpt2": save_tiny_language_model(tmp_path / "tiny-lm"),
    }
    for name, folder in stand_ins.items():
        code = code.replace(f'"{name}"', repr(str(folder)))
    names: dict[str, Any] = {}
    setup, training, _ = code.partition("trainer.train()")
    exec(setup, names)
    before = weights(names["model"])
    exec(training, names)
    assert names["trainer"].state.global_step == 6
    assert list(differing(before, weights(names["model"])))


def test_there_are_three() -> None:
    assert len(EXAMPLES) == 3
