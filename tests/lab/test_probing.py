"""Scores of probes: Matthews' correlation by hand, oracles of either feature, and what runs come to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from rosewood.data.loading import load_split
from rosewood.data.tasks import load_task
from rosewood.errors import RunError
from rosewood.evaluation.measure import measure
from rosewood.evaluation.sets import EvaluationPlan, LoadedSet, PlannedSet
from rosewood.lab.probing import Probing, matthews, probed_run, probing_of, table
from rosewood.results import CellResult, Evaluation, SetResult
from rosewood.results.grid import to_markdown

LABELS = ["raising", "control"]


def measured(predicted: Sequence[int], labels: Sequence[int], name: str = "disambiguating") -> SetResult:
    """What the evaluation says of a model that gives these answers."""
    planned = PlannedSet(name, "shift", None, name, LABELS)
    rows = [(f"text {number}",) for number in range(len(labels))]
    loaded = LoadedSet(planned, rows, list(labels), {}, "", "", 16)
    logits = 5 * np.eye(2)[list(predicted)]
    return measure(loaded, logits, EvaluationPlan("probe", None, LABELS, [planned], {}), None, 0).result


def cell_result(label: str, seed: int, answers: Sequence[int], task: str = "probe-the") -> CellResult:
    """A cell that gives these answers to eight disambiguating sentences, and is right on all others."""
    labels = [0, 1] * 4
    sets = [measured(labels, labels, name) for name in ("validation", "ambiguous")]
    evaluation = Evaluation(
        model="m", task=task, size=None, seed=0, max_length=16, typo_rate=0.3, missing=[],
        sets=[*sets, measured(answers, labels)],
    )  # fmt: skip
    facts: dict[str, Any] = {"fingerprint": "f", "model": "m", "steps": 1, "validation_accuracy": 1.0, "data": {}}
    return CellResult(label=label, task=task, seed=seed, training_seconds=1.0, evaluation=evaluation, **facts)


def test_the_correlation_of_a_table_worked_out_by_hand() -> None:
    # control: 6 right, 2 wrong; raising: 3 right, 1 wrong. (6*3 - 1*2) / sqrt(7*8*4*5) = 16 / sqrt(1120)
    labels = [1] * 8 + [0] * 4
    predicted = [1] * 6 + [0] * 2 + [0] * 3 + [1]
    assert matthews(measured(predicted, labels)) == pytest.approx(16 / 1120**0.5)


@pytest.mark.parametrize("name", ["probe-the", "probe-length"])
def test_oracles_of_either_feature_and_constant_answers(name: str) -> None:
    rows = load_split(load_task(name), "disambiguating")
    labels, surface = rows["label"][:], rows["surface_feature_label"][:]
    assert matthews(measured(labels, labels)) == 1
    assert matthews(measured(surface, labels)) == -1
    assert matthews(measured([0] * len(labels), labels)) == matthews(measured([1] * len(labels), labels)) == 0


def test_a_set_of_one_class_has_no_score() -> None:
    with pytest.raises(RunError, match="expected two classes on disambiguating, got control"):
        matthews(measured([1, 0], [1, 1]))


def test_runs_come_to_means_medians_and_intervals(tmp_path: Path) -> None:
    grammar, surface, constant = [0, 1] * 4, [1, 0] * 4, [1] * 8
    answers = {("vanilla", 0): surface, ("vanilla", 1): constant, ("vanilla", 2): grammar, ("rose", 0): grammar}
    results = [cell_result(label, seed, each) for (label, seed), each in answers.items()]
    found = probing_of("minilm", [*results, cell_result("rose", 0, surface, "probe-length")])
    assert [run.matthews for run in found.runs] == [-1, 0, 1, 1, -1]
    vanilla, rose, other = found.recipes
    assert (vanilla.label, vanilla.task, vanilla.seeds) == ("vanilla", "probe-the", [0, 1, 2])
    assert (vanilla.mean, vanilla.median) == (0, 0)
    assert vanilla.interval == (-1, 1), "Student's interval, 2.48 to either side, cut to what is possible"
    assert (rose.mean, rose.interval, rose.in_domain_mean, rose.ambiguous_accuracy) == (1, None, None, 1)
    assert (other.task, other.mean) == ("probe-length", -1)
    found.save(tmp_path / "probing.json")
    assert Probing.load(tmp_path / "probing.json") == found
    printed = to_markdown(table(found))
    assert "| probe-the | vanilla | 3 | +0.00 | -1.00 to +1.00 | +0.00 | - | 100.0% | 100.0% |" in printed
    assert "| probe-length | rose | 1 | -1.00 | - | -1.00 | - | 100.0% | 100.0% |" in printed


def test_the_interval_is_students() -> None:
    mixed, constant = [0, 1, 0, 1, 1, 0, 1, 1], [1] * 8
    found = probing_of(
        "minilm", [cell_result("vanilla", seed, each) for seed, each in enumerate([mixed, constant] * 3)]
    )
    scores = [run.matthews for run in found.runs]
    assert 0 < max(scores) < 1
    assert found.recipes[0].interval == pytest.approx(ttest_1samp(scores, 0).confidence_interval(0.95))


def test_a_file_that_is_damaged_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "probing.json"
    probing_of("minilm", [cell_result("vanilla", 0, [0, 1] * 4)]).save(path)
    path.write_text(path.read_text().replace('"matthews": 1.0', '"matthews": 1.5'))
    with pytest.raises(RunError, match=r"is not a valid Probing: runs\.0\.matthews"):
        Probing.load(path)


def test_an_evaluation_without_the_sets_of_a_probe_is_refused() -> None:
    evaluation = cell_result("vanilla", 0, [0, 1] * 4).evaluation
    with pytest.raises(RunError, match="the evaluation on probe-the lacks validation and disambiguating"):
        probed_run("vanilla", 0, evaluation.model_copy(update={"sets": evaluation.sets[1:2]}))
