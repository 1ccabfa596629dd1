"""Tasks that ran apart are joined to what they would have been together, cell by cell and p-value by p-value."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from joined_results import joined

from rosewood.experiments.experiment import Experiment, build_experiment
from rosewood.experiments.grid import cells_of
from rosewood.experiments.status import CellStatus
from rosewood.experiments.tables import comparison_of
from rosewood.results import CellResult, ComparedFigure, Comparison, Evaluation, GroupResult, Moment, SetResult

TASKS, LABELS = ("sst2", "rte", "qqp"), ("vanilla", "smart", "r-drop")
EXPERIMENT = {
    "name": "x",
    "recipes": list(LABELS),
    "tasks": list(TASKS),
    "seeds": [0, 1, 2],
    "evaluation": {"suite": "glue-adv"},
    "baseline": "vanilla",
    "published": {"smart": {"glue-adv": {"mean": 62.27, "drop": 53.91}, "rte": {"rte": 77.5}}},
}


def evaluation(task: str, random: Random) -> Evaluation:
    facts: dict[str, Any] = {"examples": 100, "interval": (0, 1), "ece": 0, "brier": 0, "nll": 0}
    worst = GroupResult(kind="length", group="long", examples=30, accuracy=random.random(), interval=(0, 1))
    sets = [
        SetResult(name=task, role="clean", accuracy=random.random(), worst=worst, **facts),
        SetResult(name=f"advglue_{task}", role="adversarial", accuracy=random.random(), **facts),
    ]
    rest: dict[str, Any] = {"size": None, "max_length": 16, "typo_rate": None, "missing": []}
    return Evaluation(model="m", task=task, suite="glue-adv", seed=0, sets=sets, **rest)


def comparison(experiment: Experiment, finished: set[str], seed: int = 0, but: str = "") -> Comparison:
    """Figures drawn at random for each cell of the finished tasks, but not for one cell; the others wait."""
    statuses = []
    for cell in cells_of(experiment):
        task, result, random = cell.task["name"], None, Random(f"{cell.name} {seed}")
        if task in finished and not cell.name.startswith(but or "-"):
            moments = [
                Moment(
                    step=step,
                    validation_accuracy=random.random(),
                    distance=None,
                    step_seconds=None,
                    evaluation=evaluation(task, random),
                )
                for step in (4, 7, 10)
            ]
            result = CellResult(
                fingerprint=cell.fingerprint, label=cell.label, task=task, model=cell.model, seed=cell.seed, steps=10,
                validation_accuracy=moments[-1].validation_accuracy, training_seconds=None, data={},
                evaluation=moments[-1].evaluation, moments=moments,
            )  # fmt: skip
        statuses.append(CellStatus(cell, Path(cell.name), result, None, begun=result is not None))
    return comparison_of(experiment, statuses)


@pytest.fixture(scope="module")
def experiment() -> Experiment:
    return build_experiment(EXPERIMENT, "here")


def test_joined_tasks_say_what_all_of_them_run_together_say(experiment: Experiment) -> None:
    whole = comparison(experiment, set(TASKS))
    assert {"mean", "drop", "worst group rte"} <= {each.figure for each in whole.figures}
    assert joined(comparison(experiment, {"sst2", "qqp"}), comparison(experiment, {"rte"})) == whole
    assert joined(comparison(experiment, {"rte"}), comparison(experiment, {"sst2", "qqp"})) == whole
    assert joined(whole, whole) == whole
    assert joined(comparison(experiment, set()), whole) == whole
    assert joined(comparison(experiment, {"sst2"}, but="smart-sst2"), whole) == whole
    assert joined(comparison(experiment, set()), comparison(experiment, set())).figures == []


def test_a_task_that_ran_again_replaces_all_that_was_kept_of_it(experiment: Experiment) -> None:
    other, whole = comparison(experiment, {"rte"}, seed=1), comparison(experiment, set(TASKS))

    def of_rte(found: Comparison) -> list[ComparedFigure]:
        figures = [each for each in found.figures if each.figure.endswith("rte")]
        return [each.model_copy(update={"p": None, "p_adjusted": None}) for each in figures]

    assert of_rte(joined(whole, other)) == of_rte(other) != of_rte(whole)
    assert joined(joined(whole, other), comparison(experiment, {"rte"})) == whole


def test_a_task_that_is_not_finished_stays_as_it_was_kept(experiment: Experiment) -> None:
    whole = comparison(experiment, set(TASKS))
    assert joined(whole, comparison(experiment, {"rte"}, seed=1, but="smart-rte")) == whole


def test_results_of_other_settings_are_not_joined(experiment: Experiment) -> None:
    other = build_experiment(EXPERIMENT | {"training": {"learning_rate": 3e-5}}, "here")
    with pytest.raises(SystemExit, match="settings or data have changed"):
        joined(comparison(experiment, {"sst2", "qqp"}), comparison(other, {"rte"}))
