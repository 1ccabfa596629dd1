"""What docs/word-substitutions.md shows is what runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from transformers import TrainingArguments

from rosewood import Lexicon
from tiny import differing, weights
from tiny_text import tiny_classifier, tiny_tokenizer

PAGE = (Path(__file__).parent.parent / "docs" / "word-substitutions.md").read_text(encoding="utf-8")
LEXICON = Lexicon.of({"good": ["fine", "bad"], "film": ["movie"]})
EXAMPLE, MISTYPED = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_examples_train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With everything before it that a script has: a model, its tokenizer, data and arguments."""
    monkeypatch.setattr(Lexicon, "named", staticmethod(lambda: LEXICON))
    names: dict[str, Any] = {
        "train": Dataset.from_dict({"text": ["a good film", "the bad movie"] * 4, "label": [1, 0] * 4}),
        "tokenizer": tiny_tokenizer(),
        "model": tiny_classifier(),
        "arguments": TrainingArguments(tmp_path, max_steps=2, report_to=[], disable_tqdm=True, use_cpu=True),
    }
    before = weights(names["model"])
    exec(EXAMPLE, names)
    names["trainer"].train()
    middle = weights(names["model"])
    assert list(differing(before, middle))
    exec(MISTYPED, names)
    names["trainer"].train()
    assert list(differing(middle, weights(names["model"])))
