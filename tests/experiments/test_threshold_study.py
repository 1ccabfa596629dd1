"""What the study of automatic thresholds chooses, it chooses on rows that it does not report."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from rosewood.comparison.statistics import t_interval

SCRIPT = runpy.run_path(str(Path(__file__).parent.parent.parent / "benchmarks" / "automatic_threshold.py"))
CHOICE = {"0.3": 0.6, "0.6": 0.8, "0.9": 0.7, "1.0": 0.9, "otsu": 0.5, "outliers": 0.7, "gap": 0.6}
ACCURACY = {"0.3": 0.9, "0.6": 0.6, "0.9": 0.5, "1.0": 0.7, "otsu": 0.9, "outliers": 0.65, "gap": 0.6}


def cell(task: str, threshold: str, seed: int) -> dict[str, Any]:
    gain = seed / 100 if threshold == "outliers" else 0.0
    return {
        "task": task,
        "threshold": threshold,
        "seed": seed,
        "choice": CHOICE[threshold],
        "accuracy": ACCURACY[threshold] + gain,
        "typos": ACCURACY[threshold] / 2,
        "examples": 100,
        "kept_share": 0.5,
        "kept_share_deviation": 0.1,
        "seconds": 10.0,
    }


CELLS = [cell(task, threshold, seed) for task in ("a", "b") for threshold in CHOICE for seed in range(3)]


def test_grid_and_rule_are_those_that_are_best_on_the_other_half() -> None:
    chosen = {(each["task"], each["threshold"]): each["chosen"] for each in SCRIPT["summary"](CELLS)}
    assert chosen["a", "grid"] == "0.6", "0.3 is better on the half that is reported, 1.0 is not of the grid"
    assert chosen["a", "rule"] == chosen["b", "rule"] == "outliers"


def test_differences_are_of_equal_seeds_over_all_tasks() -> None:
    found = {(each["of"], each["from"], each["measure"]): each for each in SCRIPT["differences"](CELLS)}
    gain = found["rule", "grid", "accuracy"]
    values = [0.05, 0.06, 0.07]
    assert (gain["mean"], gain["low"], gain["high"]) == pytest.approx((0.06, *t_interval(values)))
    assert found["otsu", "1.0", "typos"]["mean"] == pytest.approx(0.1)
    assert "| rule | outliers: 66.0 ± 1.0, 32.5 ± 0.0, 0.50 |" in SCRIPT["markdown"](SCRIPT["summary"](CELLS), [])
    assert "+6.0 (" in SCRIPT["markdown"](SCRIPT["summary"](CELLS), list(found.values()))


def test_an_unfinished_task_is_compared_on_the_seeds_that_it_has() -> None:
    few = [each for each in CELLS if each["task"] == "a" or each["seed"] < 2]
    found = {(each["of"], each["from"], each["measure"]): each for each in SCRIPT["differences"](few)}
    assert found["rule", "0.6", "accuracy"]["seeds"] == 2
    without_rules = [each for each in CELLS if each["task"] == "a" or each["threshold"] != "gap"]
    assert not any(each["of"] in ("gap", "rule") for each in SCRIPT["differences"](without_rules))
