"""What the README shows is what runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import datasets
import pytest
import transformers
from transformers import TrainingArguments

import rosewood
from rosewood import Lexicon
from tiny_text import save_tiny_checkpoint, tiny_classifier, tiny_tokenizer

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
GUIDE = (ROOT / "docs" / "train.md").read_text(encoding="utf-8")
ROWS = {"sentence": ["a good film", "a bad film"] * 4, "label": [1, 0] * 4}
(DIFF,) = re.findall(r"```diff\n(.*?)```", README, re.DOTALL)
WORDS = Lexicon.of({"good": ["fine"], "film": ["movie"]})


def side(sign: str) -> str:
    """The script of the README before (-) or after (+) the change."""
    return "\n".join(line[1:] for line in DIFF.splitlines() if line[:1] in (sign, " ", ""))


@pytest.mark.parametrize(("sign", "expected"), [("-", transformers.Trainer), ("+", rosewood.RobustTrainer)])
def test_the_script_trains_before_and_after_the_change(
    sign: str, expected: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what any such script has: a model, its tokenizer, texts and arguments."""
    monkeypatch.setattr(Lexicon, "named", staticmethod(lambda *_: WORDS))
    names: dict[str, Any] = {
        "data": datasets.Dataset.from_dict(ROWS).rename_column("sentence", "text"),
        "tokenizer": tiny_tokenizer(),
        "model": tiny_classifier(),
        "arguments": TrainingArguments(tmp_path, max_steps=2, report_to=[], disable_tqdm=True, use_cpu=True),
    }
    exec(side(sign), names)
    assert type(names["trainer"]) is expected
    assert names["trainer"].state.global_step == 2


def test_two_lines_change() -> None:
    assert [line[0] for line in DIFF.splitlines() if line.startswith(("-", "+"))] == ["-", "+", "-", "+"]
    assert len(DIFF.splitlines()) <= 12


def test_the_whole_script_is_that_of_the_guide_and_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As printed, but for the Hub: a tiny checkpoint and a few sentences replace what it would download."""
    (code,) = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    assert len([line for line in code.splitlines() if line.strip()]) <= 12
    assert all(line.replace('"text"', '"sentence"') in code.splitlines() for line in side("+").splitlines() if line)
    asked: list[Any] = []

    def hub(*name: str, split: str) -> datasets.Dataset:
        asked.append((*name, split))
        return datasets.Dataset.from_dict(ROWS)

    monkeypatch.setattr(datasets, "load_dataset", hub)
    monkeypatch.setattr(Lexicon, "named", staticmethod(lambda *_: WORDS))
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(code.replace('"roberta-base"', repr(str(save_tiny_checkpoint(tmp_path / "tiny")))), names)
    assert asked == [("nyu-mll/glue", "sst2", "train")]
    assert names["trainer"].state.global_step == 3
    assert names["trainer"].recipe.name == "augment"
    assert {"substitution_changes", "typing_changes"} <= set(names["trainer"].train_dataset.column_names)


def test_it_is_short() -> None:
    assert len(README.splitlines()) <= 150
