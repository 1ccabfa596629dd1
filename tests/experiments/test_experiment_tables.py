"""Tables of an experiment over several tasks, from results made by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rosewood.experiments.cell import CellStatus
from rosewood.experiments.experiment import build_experiment
from rosewood.experiments.grid import cells_of
from rosewood.experiments.tables import comparison_of, grids_of
from rosewood.results import CellResult, Evaluation, Mean, SetResult
from tiny_experiment import tiny_experiment

TASKS = ("sst2", "rte")
GAINS = (0.2, 0.22, 0.21)


def evaluation(task: str, adversarial: float) -> Evaluation:
    facts: dict[str, Any] = {"examples": 100, "interval": (0, 1), "ece": 0, "brier": 0, "nll": 0}
    sets = [
        SetResult(name=task, role="clean", accuracy=0.8, **facts),
        SetResult(name=f"advglue_{task}", role="adversarial", accuracy=adversarial, **facts),
    ]
    rest: dict[str, Any] = {"size": None, "max_length": 16, "typo_rate": None, "missing": []}
    return Evaluation(model="m", task=task, suite="glue-adv", seed=0, sets=sets, **rest)


def status_of(folder: Path, label: str, task: str, seed: int) -> CellStatus:
    cell = cells_of(tiny_experiment(folder, recipes=[label], seeds=[seed], attacks=[], baseline=None))[0]
    adversarial = 0.3 + seed / 100 + (GAINS[seed] if label == "smart" else 0.0)
    result = CellResult(
        fingerprint=f"{label}-{task}-{seed}",
        label=label,
        task=task,
        model="m",
        seed=seed,
        steps=10,
        validation_accuracy=0.8,
        training_seconds=None,
        data={},
        evaluation=evaluation(task, adversarial),
    )
    return CellStatus(cell, folder / f"{label}-{task}-{seed}", result, None, True)


def test_mean_and_drop_are_data_beside_what_a_paper_has(tmp_path: Path) -> None:
    statuses = [
        status_of(tmp_path, label, task, seed) for label in ("vanilla", "smart") for task in TASKS for seed in range(3)
    ]
    raw = {
        "name": "x",
        "recipes": ["vanilla", "smart"],
        "tasks": list(TASKS),
        "baseline": "vanilla",
        "published": {"smart": {"glue-adv": {"mean": 62.27, "drop": 53.91}}},
    }
    experiment = build_experiment(raw, "here")
    found = {(each.label, each.figure): each for each in comparison_of(experiment, statuses).figures}
    drop, vanilla = found["smart", "drop"], found["vanilla", "drop"]
    assert vanilla.values == pytest.approx({seed: 0.5 - seed / 100 for seed in range(3)})
    assert drop.values == pytest.approx({seed: 0.5 - seed / 100 - GAINS[seed] for seed in range(3)})
    assert drop.published == pytest.approx(0.5391) and drop.deviation is not None and drop.interval is not None
    assert drop.p is not None and drop.p_adjusted is not None and drop.p < drop.p_adjusted < 0.01
    assert found["smart", "sst2"].p is None, "clean accuracy varies in no run"
    grid = grids_of(experiment, statuses)[0]
    header = [" ".join(name.split()) for name in grid.header]
    assert header[-4:] == ["mean 2 of 4 tasks", "paper mean", "drop 2 of 4 tasks", "paper drop"]
    assert grid.rows[1][header.index("drop 2 of 4 tasks")] == "28.0 ±1.7*"
    intervals = grids_of(experiment, statuses)[1]
    low, high = drop.interval
    assert [" ".join(name.split()) for name in intervals.header][-1] == "drop 2 of 4 tasks"
    assert intervals.rows[1][-1] == f"{100 * low:.1f} to {100 * high:.1f}"
    fewer = [each for each in statuses if each.cell.seed == 0 or each.cell.label == "vanilla"]
    assert set(grids_of(experiment, fewer)[1].rows[1][1:]) == {"-"}, "a single run has no spread over seeds"
    single = [each for each in statuses if each.cell.seed == 0]
    assert not any("intervals" in each.title for each in grids_of(experiment, single)), "they stand beside the figures"


def test_roasts_improvement_and_rank_are_data_of_a_method_beside_what_a_paper_has(tmp_path: Path) -> None:
    metrics = {"clean": 0.9, "shift": 0.8, "adversarial": 0.5, "held_out_ece": 0.1, "auroc": 0.7}
    statuses = []
    for label, gains in (("vanilla", {}), ("smart", {"shift": 0.9, "held_out_ece": 0.05})):
        means = [Mean(name=name, value=value, sets=[name], missing=[]) for name, value in (metrics | gains).items()]
        found = status_of(tmp_path, label, "sst2", 0)
        assert found.result is not None
        measured = found.result.evaluation.model_copy(update={"means": means, "suite": "sentiment"})
        statuses.append(replace(found, result=found.result.model_copy(update={"evaluation": measured})))
    raw = {
        "name": "x",
        "recipes": ["vanilla", "smart"],
        "tasks": [{"task": "sst2", "evaluation": {"suite": "sentiment"}}],
        "baseline": "vanilla",
        "published": {"smart": {"sentiment": {"improvement (4 metrics)": 18.39, "rank": 1.5}}},
    }
    comparison = comparison_of(build_experiment(raw, "here"), statuses)
    found_by = {(each.label, each.figure): each for each in comparison.figures}
    improvement = found_by["smart", "improvement (4 metrics)"]
    assert improvement.mean == pytest.approx(0.25), "half of what shift and calibration lack, none of the other two"
    assert improvement.published == pytest.approx(0.1839) and improvement.values == {}
    assert found_by["vanilla", "improvement (4 metrics)"].mean == 0
    assert found_by["smart", "rank"].published == pytest.approx(1.5)
    assert (found_by["smart", "rank"].mean, found_by["vanilla", "rank"].mean) == pytest.approx((1.3, 1.7))
