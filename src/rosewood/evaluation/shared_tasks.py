"""Runs on several tasks, balanced: means over tasks compare only where all of them are over the same tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rosewood.evaluation.evaluated_runs import EvaluatedRun
from rosewood.results import Evaluation


class SharedTasks(NamedTuple):
    """What is left of the runs of some methods where each has the same tasks, and so has each of its seeds."""

    tasks: list[str]
    """Those of which every method has runs."""
    other_tasks: list[str]
    by_seed: dict[str, dict[int | None, list[Evaluation]]]
    """Method -> seed that has all of the tasks -> its evaluations on them."""
    incomplete: int
    """Runs on these tasks of seeds that lack some of them."""


def shared_tasks(methods: Mapping[str, Sequence[EvaluatedRun]]) -> SharedTasks:
    """The tasks that all methods have, and the seeds that have all of these tasks."""
    tasks = list(dict.fromkeys(run.evaluation.task for runs in methods.values() for run in runs))
    had = [{run.evaluation.task for run in runs} for runs in methods.values()]
    shared = [task for task in tasks if all(task in each for each in had)]
    by_seed = {method: _by_seed(runs, shared) for method, runs in methods.items()}
    return SharedTasks(
        shared,
        [task for task in tasks if task not in shared],
        {
            method: {seed: each for seed, each in seeds.items() if len(each) == len(shared)}
            for method, seeds in by_seed.items()
        },
        sum(len(each) for seeds in by_seed.values() for each in seeds.values() if len(each) < len(shared)),
    )


def _by_seed(runs: Sequence[EvaluatedRun], tasks: Sequence[str]) -> dict[int | None, list[Evaluation]]:
    """The evaluations of each seed, in the order of the tasks."""
    found: dict[int | None, dict[str, Evaluation]] = {}
    for run in runs:
        if run.evaluation.task in tasks:
            found.setdefault(run.seed, {})[run.evaluation.task] = run.evaluation
    return {seed: [of[task] for task in tasks if task in of] for seed, of in found.items()}
