"""rosewood harden as a person types it, and what can be done with the folder that it leaves."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from data.conftest import needs_minilm, needs_reviews
from rosewood.cli.harden import CHOOSING, TRAIN_SIZE, _demo_task
from rosewood.data.loading import load_split
from rosewood.data.splitting import text_keys
from rosewood.data.tasks import load_task
from rosewood.experiments.harden import harden
from rosewood.results import Hardening
from tiny_harden import Counted, Place

Rosewood = Callable[..., str]


def test_a_defence_around_ones_own_model_leaves_a_run(
    rosewood: Rosewood, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harden, "Stopwatch", lambda before: Counted(before))
    place, output = Place(tmp_path), tmp_path / "hardened"
    words = [
        *("harden", place.classifier(), "--train-file", place.train, "--test-file", place.test, "--threat", "typos"),
        *("--budget", "2m", "--max-clean-loss", 3, "--candidate", "vanilla", "--learning-rate", "1e-8"),
        *("--max-length", 48, "--precision", "float32", "--output", output),
    ]
    printed = rosewood(*words)
    assert "corrected helps: all candidates are measured with it around them" in printed
    assert "corrected around start is better" in printed and f"The model is in {output}/model" in printed
    assert rosewood(*words).endswith(printed[printed.index("corrected around start is better") :])
    state = Hardening.load(output / "harden.json")
    assert state.winner == "corrected around start"
    test_rows = place.test.read_text(encoding="utf-8").count("\n") - 1
    assert json.loads((output / "evaluation.json").read_text())["sets"][0]["examples"] <= test_rows

    card = (output / "model" / "README.md").read_text(encoding="utf-8")
    assert "with Rosewood's defence **corrected** around it" in card and "It was not trained after that." in card
    assert "## How it was hardened" in card and str(tmp_path) not in card
    assert "clean" in rosewood("gate", output, "--require", "clean>=0.5", "--require", "typos>=0.05")
    assert f"The results are in {output}" in rosewood("evaluate", output, "--size", 20)
    assert "typos" in rosewood("attack", output, "--attack", "typos", "--examples", 5, "--max-queries", 20)


@needs_reviews
def test_the_demo_shows_reviews_that_it_does_not_train_on_and_that_no_test_table_had() -> None:
    task, usual = _demo_task(), load_task("reviews")
    texts = {name: set(text_keys([load_split(task, name)["text"][:]])) for name in ("train", "validation", "test")}
    assert len(texts["test"]) == 600 and len(texts["train"]) >= TRAIN_SIZE and len(texts["validation"]) >= CHOOSING
    assert not texts["test"] & (texts["train"] | texts["validation"])
    assert not texts["test"] & set(text_keys([load_split(usual, "test")["text"][:]]))
    labels = load_split(task, "test")["label"][:]
    assert abs(sum(labels) - 300) <= 1


@pytest.mark.slow
@needs_reviews
@needs_minilm
def test_the_demo_ends_with_a_gain_that_anyone_can_see(rosewood: Rosewood, tmp_path: Path) -> None:
    printed = rosewood("demo", "--output", tmp_path / "demo")
    state = Hardening.load(tmp_path / "demo" / "harden.json")
    assert state.outcome == "hardened", state.sentence
    assert any("rose" in each.candidate for each in state.tried), "ROSE is among the candidates"
    (threat,) = [each for each in state.changes if each.role == "threat"]
    assert threat.before_interval is not None and threat.after_interval is not None
    assert threat.after_interval[0] > threat.before_interval[1], threat
    assert "Texts that broke your model, and do not break this one:" in printed
