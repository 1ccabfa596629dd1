"""Matched clean accuracy on results made by hand."""

from __future__ import annotations

from typing import Any

import pytest
from kept_studies import ADVGLUE, Study, gains_at_match

from rosewood.comparison.matched_accuracy import at_match, described, grid_of, matched
from rosewood.results import CellResult, Evaluation, Moment, SetResult


def evaluation(adversarial: float) -> Evaluation:
    facts: dict[str, Any] = {"examples": 100, "interval": (0, 1), "ece": 0, "brier": 0, "nll": 0}
    sets = [SetResult(name="advglue", role="adversarial", accuracy=adversarial, **facts)]
    rest: dict[str, Any] = {"size": None, "max_length": 16, "typo_rate": None, "missing": []}
    return Evaluation(model="m", task="t", seed=0, sets=sets, **rest)


def cell(label: str, course: list[tuple[int, float, float]], seed: int = 0, task: str = "t") -> CellResult:
    """A cell from (step, validation accuracy, adversarial accuracy) at each of its moments."""
    moments = [
        Moment(step=step, validation_accuracy=right, distance=None, step_seconds=None, evaluation=evaluation(robust))
        for step, right, robust in course
    ]
    return CellResult(
        fingerprint=f"{label}-{task}-{seed}",
        label=label,
        task=task,
        model="m",
        seed=seed,
        steps=course[-1][0] if course else 30,
        validation_accuracy=course[-1][1] if course else 0.5,
        training_seconds=None,
        data={},
        evaluation=evaluation(course[-1][2] if course else 0.0),
        moments=moments,
    )


def test_the_first_moment_at_the_lowest_final_accuracy_is_taken() -> None:
    fast = cell("fast", [(10, 0.70, 0.50), (20, 0.80, 0.40), (30, 0.90, 0.30)])
    slow = cell("slow", [(10, 0.60, 0.55), (20, 0.65, 0.45), (30, 0.75, 0.42)])
    found = matched([fast, slow])
    assert {name: (match.level, match.moment.step) for name, match in found.items()} == {
        "fast-t-0": (0.75, 20),
        "slow-t-0": (0.75, 30),
    }
    assert at_match(fast, found["fast-t-0"]).evaluation.sets[0].accuracy == 0.40
    assert fast.evaluation.sets[0].accuracy == 0.30, "the end: by itself it made the slow one look more robust"


def test_a_pair_is_matched_by_itself() -> None:
    fast = cell("fast", [(10, 0.70, 0.50), (20, 0.80, 0.40), (30, 0.90, 0.30)])
    slow = cell("slow", [(10, 0.60, 0.55), (20, 0.65, 0.45), (30, 0.75, 0.42)])
    lost = cell("lost", [(10, 0.5, 0.9), (20, 0.5, 0.8), (30, 0.5, 0.7)])
    alone = cell("slow", [(10, 0.6, 0.5)], seed=1)
    cells = [fast, slow, lost, alone]
    assert matched(cells)["fast-t-0"].moment.step == 10, "the lost one pulls all down"
    study = Study("made", "Made by hand", "fast", results=cells)
    assert gains_at_match(study, "slow", "fast", ADVGLUE) == [pytest.approx(42 - 40)]
    assert gains_at_match(study, "lost", "fast", ADVGLUE) == [pytest.approx(90 - 50)]
    assert gains_at_match(study, "absent", "fast", ADVGLUE) == []


def test_the_final_accuracy_counts_not_the_best_and_a_level_is_reached_when_equal() -> None:
    overfit = cell("overfit", [(10, 0.9, 0.1), (20, 0.8, 0.1)])
    steady = cell("steady", [(10, 0.8, 0.2), (20, 0.85, 0.2)])
    found = matched([overfit, steady])
    assert {match.level for match in found.values()} == {0.8}
    assert {match.moment.step for match in found.values()} == {10}


def test_levels_are_of_each_task_and_seed() -> None:
    cells = [
        cell("a", [(10, 0.5, 0), (20, 0.9, 0)]),
        cell("b", [(10, 0.5, 0), (20, 0.6, 0)]),
        cell("a", [(10, 0.5, 0), (20, 0.7, 0)], seed=1),
        cell("b", [(10, 0.5, 0), (20, 0.8, 0)], seed=1),
        cell("a", [(10, 0.3, 0), (20, 0.4, 0)], task="u"),
    ]
    assert {name: match.level for name, match in matched(cells).items()} == {
        "a-t-0": 0.6,
        "b-t-0": 0.6,
        "a-t-1": 0.7,
        "b-t-1": 0.7,
        "a-u-0": 0.4,
    }


def test_evaluation_sets_have_no_say_in_the_choice() -> None:
    courses = [[(10, 0.7, robust), (20, 0.8, 1 - robust)] for robust in (0.0, 1.0)]
    chosen = [matched([cell("a", course)])["a-t-0"].moment.step for course in courses]
    assert chosen == [20, 20]


def test_cells_without_moments_are_left_out() -> None:
    found = matched([cell("a", []), cell("b", [(10, 0.9, 0.1)])])
    assert list(found) == ["b-t-0"]


def test_the_grid_has_means_over_seeds() -> None:
    cells = [
        cell("a", [(10, 0.50, 0), (20, 0.90, 0)]),
        cell("b", [(10, 0.50, 0), (20, 0.60, 0)]),
        cell("a", [(10, 0.81, 0), (20, 0.70, 0)], seed=1),
        cell("b", [(10, 0.50, 0), (20, 0.80, 0)], seed=1),
    ]
    found = matched(cells)
    grid = grid_of([described(each, found[each.fingerprint]) for each in cells])
    assert [list(row) for row in grid.rows] == [
        ["t", "m", "a", "2", "65.0", "85.5", "15", "20"],
        ["t", "m", "b", "2", "65.0", "70.0", "20", "20"],
    ]
    assert "The farthest moment lies 30.0 points above its level." in grid.caption
