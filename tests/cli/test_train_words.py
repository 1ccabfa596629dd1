"""rosewood train with a recipe that replaces words, and with an attack that chooses the epoch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.conftest import Rosewood
from rosewood.results import Metrics, RunInfo
from tiny_text import save_tiny_checkpoint


@pytest.fixture
def options(tmp_path: Path) -> list[object]:
    rows = [f"a {'good' if i % 2 else 'bad'} film {'abcdefgh'[i % 8]},{i % 2}" for i in range(40)]
    (tmp_path / "films.csv").write_text("\n".join(["text,label", *rows]), encoding="utf-8")
    (tmp_path / "words.json").write_text(json.dumps({"good": ["nice"], "film": ["movie"], "bad": ["awful"]}))
    return [
        *("--train-file", tmp_path / "films.csv", "--model", save_tiny_checkpoint(tmp_path / "tiny")),
        *("--max-length", 24, "--batch-size", 8, "--epochs", 2, "--set", "perturbation.steps=1"),
        *("--set", f"perturbation.lexicon={tmp_path / 'words.json'}", "--output", tmp_path / "run"),
    ]


@pytest.mark.parametrize("recipe", ["adv-ptwd", "rose-ensemble+rift"])
def test_a_synonym_recipe_and_the_most_robust_epoch(
    recipe: str, options: list[object], rosewood: Rosewood, tmp_path: Path
) -> None:
    said = rosewood("train", "--recipe", recipe, *options, "--select-by", "pwws", "--select-examples", 3)
    metrics, info = Metrics.load(tmp_path / "run/metrics.json"), RunInfo.load(tmp_path / "run/run.json")
    assert (info.select_by, info.select_examples, info.status) == ("pwws", 3, "finished")
    assert metrics.robust_validation_accuracy is not None
    assert f"{metrics.robust_validation_accuracy:.1%} under attack" in said
    assert "substitutes:" not in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--select-by", "genetic"], "genetic cannot select the best epoch"),
        (["--select-by", "pwws", "--set", "perturbation.lexicon=thesaurus"], "unknown lexicon 'thesaurus'"),
        (["--set", "perturbation.field=premise"], "no text 'premise' whose words could be replaced"),
    ],
)
def test_what_is_refused(
    words: list[str], message: str, options: list[object], rosewood: Rosewood, tmp_path: Path
) -> None:
    assert message in " ".join(rosewood("train", "--recipe", "rift", *options, *words, code=1).split())
    assert not (tmp_path / "run").exists()
