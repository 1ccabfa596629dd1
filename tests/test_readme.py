"""What the README shows is what runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import datasets
import pytest

from rosewood import Lexicon
from tiny_text import save_tiny_checkpoint

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_python_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As printed, but for the Hub: a tiny checkpoint and a few sentences replace what it would download."""
    example = re.search(r"```python\n(.*?)```", README, re.DOTALL)
    assert example is not None
    code = example.group(1)
    assert len([line for line in code.splitlines() if line.strip()]) <= 12
    rows = datasets.Dataset.from_dict({"sentence": ["a good film", "a bad film"] * 4, "label": [1, 0] * 4})
    asked: list[Any] = []

    def hub(*name: str, split: str) -> datasets.Dataset:
        asked.append((*name, split))
        return rows

    monkeypatch.setattr(datasets, "load_dataset", hub)
    monkeypatch.setattr(Lexicon, "named", staticmethod(lambda: Lexicon.of({"good": ["fine"], "film": ["movie"]})))
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(code.replace('"roberta-base"', repr(str(save_tiny_checkpoint(tmp_path / "tiny")))), names)
    assert asked == [("nyu-mll/glue", "sst2", "train")]
    assert names["trainer"].state.global_step == 3
    assert names["trainer"].recipe.name == "a2t"


def test_it_is_short_and_its_example_is_that_of_the_guide() -> None:
    assert len(README.splitlines()) <= 150
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert example in (ROOT / "docs" / "train.md").read_text(encoding="utf-8")
