"""What a search leaves behind: all trials as a table, the best settings as a recipe, and the command that uses them."""

from __future__ import annotations

import csv
import io
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rosewood.config.settings import RunSettings
from rosewood.recipe import Recipe, load_recipe
from rosewood.results import write
from rosewood.results.locks import held
from rosewood.training.plan import Plan

if TYPE_CHECKING:
    from optuna import Study

BEST, TABLE, TASK = "best.yaml", "trials.csv", "task.yaml"
_PATIENCE = 60.0  # seconds, for what takes milliseconds


@dataclass(frozen=True)
class Tried:
    """A trial that came to its end: `state` is complete, pruned or failed."""

    number: int
    state: str
    value: float | None
    clean: float | None
    robust: float | None
    settings: Mapping[str, Any]
    error: str
    guessing: bool = False


@dataclass(frozen=True)
class Tuning:
    """All trials in the order in which their settings were drawn, and what the best one says."""

    trials: Sequence[Tried]
    best: Tried | None
    recipe: Recipe | None
    command: str


def tried(study: Study) -> list[Tried]:
    """The trials of a study that came to an end."""
    from rosewood.experiments.tuning.study import ended, error_of, place_of

    everything = study.get_trials(deepcopy=False)
    found = [
        Tried(
            number=place_of(trial.number, everything) + 1,
            state="failed" if error_of(trial) else trial.state.name.lower(),
            value=trial.value,
            clean=trial.user_attrs.get("clean"),
            robust=trial.user_attrs.get("robust"),
            settings=trial.params,
            error=error_of(trial),
            guessing=trial.user_attrs.get("guessing", False),
        )
        for trial in ended(study)
    ]
    return sorted(found, key=lambda each: each.number)


def best_of(trials: Sequence[Tried]) -> Tried | None:
    """The complete trial with the highest figure; of equal ones the first. One at guessing only if all are."""
    complete = [each for each in trials if each.state == "complete" and each.value is not None]
    return max(complete, key=lambda each: (not each.guessing, each.value, -each.number), default=None)


def save_outcome(study: Study, plan: Plan, task: str, output: Path) -> Tuning:
    """Write trials.csv and, once there is one, best.yaml."""
    with held(output, patience=_PATIENCE):  # of several workers, the last one has seen all that the others have
        trials = tried(study)
        best = best_of(trials)
        write(output / TABLE, _csv(trials))
        if best is None:
            return Tuning(trials, None, None, "")
        recipe = load_recipe(plan.recipe, best.settings)
        recipe = replace(recipe, name=f"{plan.recipe.name}-tuned")
        recipe.save(output / BEST)
    return Tuning(trials, best, recipe, command(plan, task, output))


def command(plan: Plan, task: str, output: Path) -> str:
    """The `rosewood train` that uses the best settings on all training data of the task."""
    settings = plan.only(RunSettings).words(without=["validation_size"])  # that of the search is of held-out data
    trusted = [] if plan.trust_remote_code is None else ["--trust-remote-code", plan.trust_remote_code]
    named = ["--recipe", str(output / BEST), "--task", task]
    return shlex.join(["rosewood", "train", *named, *settings, *trusted, "--output", str(output / "best")])


def _csv(trials: Sequence[Tried]) -> str:
    paths = list(dict.fromkeys(path for each in trials for path in each.settings))
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["trial", "state", "value", "clean", "robust", *paths, "error"])
    for each in trials:
        figures = [each.number, each.state, each.value, each.clean, each.robust]
        rows.writerow([*figures, *(each.settings.get(path) for path in paths), each.error])
    return text.getvalue()
