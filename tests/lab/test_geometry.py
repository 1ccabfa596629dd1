"""Features of a run and of its pre-trained model, on maps and circles."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from rosewood.data.loading import task_from_files
from rosewood.errors import RunError
from rosewood.lab.geometry import FILE, Geometry, alignments, features, geometry, on_circle, uniformity
from rosewood.recipe import load_recipe
from rosewood.report.figures.lab import geometry as drawn
from rosewood.training.run import Plan, start_run
from tiny_text import save_tiny_checkpoint, tiny_classifier, tiny_tokenizer

UNIT = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])


def test_features_are_the_poolers_at_length_one() -> None:
    model, tokenizer = tiny_classifier(), tiny_tokenizer()
    texts = [("good film",), ("a",), ("film b c d",)]
    found = features(model, tokenizer, texts, max_length=16, batch_size=2)
    assert model.training, "the mode is put back"
    for row, (text,) in zip(found, texts, strict=True):
        with torch.no_grad():
            pooled = model.eval().bert(**tokenizer(text, return_tensors="pt")).pooler_output[0].double()
        np.testing.assert_allclose(row, pooled / pooled.norm(), atol=1e-6)


def test_points_go_to_the_circle_along_their_ray() -> None:
    found = on_circle(np.array([[3.0, 4.0], [0.0, -0.01], [0.0, 0.0]]), 0.9)
    np.testing.assert_allclose(found, [[0.54, 0.72], [0.0, -0.9], [0.9, 0.0]])


def test_uniformity_and_alignment_by_hand() -> None:
    pairs = [2.0, 4.0, 2.0]  # squared distances
    assert uniformity(UNIT) == pytest.approx(math.log(sum(math.exp(-2 * each) for each in pairs) / 3))
    own, others = alignments(UNIT, UNIT[[1, 0, 2]], np.array([0, 0, 1]))
    assert own == pytest.approx((0 + 0 + 1) / 3)
    assert others == pytest.approx(1.0), "the first two have each other's vector"
    assert math.isnan(alignments(UNIT, UNIT, np.array([0, 1, 2]))[1]), "no class has two examples"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("geometry")
    rows = [f"{'good' if i % 2 else 'bad'} film {chr(97 + i % 26)}{chr(97 + i // 26)},{i % 2}" for i in range(60)]
    (folder / "films.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    plan = Plan(
        recipe=load_recipe("vanilla"),
        task=task_from_files(folder / "films.csv", None, text_columns=["text"], label_column="label"),
        model=str(save_tiny_checkpoint(folder / "tiny")),
        max_length=16,
        arguments={"max_steps": 2, "learning_rate": 1e-3},
    )
    start_run(plan, folder / "run")
    return folder / "run"


def test_a_run_against_its_pretrained_model(run: Path, tmp_path: Path) -> None:
    found = geometry(run, examples=6)
    assert Geometry.load(run / FILE) == found
    assert len(found.classes) == len(found.student) == len(found.teacher_circle) == 6
    assert all(math.hypot(*place) == pytest.approx(1.0, abs=1e-5) for place in found.student_circle)
    assert all(math.hypot(*place) == pytest.approx(0.9, abs=1e-5) for place in found.teacher_circle)
    assert 0.9 < found.alignment < 1, "two steps change little, and something"
    assert found.alignment > found.alignment_of_others
    figure = drawn(found)
    points = sum(len(trace.x) for trace in figure.data if trace.showlegend is False)
    assert points == 4 * 6, "every example before, after and on both circles"


def test_both_models_compute_on_the_accelerator(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moved = []
    monkeypatch.setattr("rosewood.lab.geometry.accelerated", lambda model: moved.append(model) or model)
    geometry(run, examples=6)
    assert len(moved) == 2 and moved[0] is not moved[1]


def test_too_few_examples_are_refused(run: Path) -> None:
    with pytest.raises(RunError, match="a map needs at least 5 examples, and the split validation has 3"):
        geometry(run, examples=3)
