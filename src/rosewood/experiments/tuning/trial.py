"""One trial: train with some settings, tell the study how it goes, and give the figure that it is judged by."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from transformers import TrainerCallback

from rosewood.experiments.tuning.goal import Goal
from rosewood.experiments.tuning.search import Space
from rosewood.experiments.tuning.study import ERROR, SETTINGS, put_back
from rosewood.recipe import load_recipe
from rosewood.results import Metrics
from rosewood.results.files import fingerprint_of
from rosewood.results.locks import clear, held
from rosewood.training.callbacks import ATTACKED, METRIC, Interrupted
from rosewood.training.health import guesses
from rosewood.training.plan import Plan
from rosewood.training.run import finish_run

WEIGHTS = ("model", "adapter", "checkpoints")


@dataclass(frozen=True)
class Trials:
    """What all trials of a study share; called by Optuna with each of them."""

    plan: Plan
    space: Space
    goal: Goal
    output: Path
    news: Callable[[], None]
    """Called when there is something new to show."""

    def __call__(self, trial: optuna.Trial) -> float:
        """Train, and give the figure; weights are not kept, since the winner's can be had again."""
        try:
            settings = {path: dimension.suggest(trial, path) for path, dimension in self.space.items()}
            self.news()
            folder = self._folder(trial, settings)
            with held(folder, patience=math.inf):  # another worker may be at the same settings
                return self._trained(trial, settings, folder)
        except (Interrupted, KeyboardInterrupt):
            put_back(trial.study, trial)
            raise KeyboardInterrupt from None
        except optuna.TrialPruned:
            raise
        except Exception as error:
            trial.set_user_attr(ERROR, f"{type(error).__name__}: {error}")
            raise

    def _folder(self, trial: optuna.Trial, settings: dict[str, Any]) -> Path:
        """The same for the same settings, so that a trial that is begun again goes on where it stood."""
        facts = [trial.study.user_attrs[SETTINGS], settings]
        folder = self.output / "trials" / fingerprint_of(facts, ordered=False)[:12]
        trial.set_user_attr("folder", folder.name)
        return folder

    def _trained(self, trial: optuna.Trial, settings: dict[str, Any], folder: Path) -> float:
        if not (folder / "run.json").exists():
            clear(folder)  # killed before it had begun
        plan = self.plan.model_copy(update={"recipe": load_recipe(self.plan.recipe, settings)})
        try:
            finish_run(plan, folder, [_Reports(trial, self.goal, self.news)])
        except Exception:
            _drop_weights(folder)  # while nobody else works here: another trial may have the same settings
            raise
        metrics = Metrics.load(folder / "metrics.json")
        clean, robust = metrics.validation_accuracy, metrics.robust_validation_accuracy
        attacked, guessing = metrics.attacked_validation_accuracy, metrics.at_guessing
        assert clean is not None  # there is held-out data
        _drop_weights(folder)
        trial.set_user_attr("clean", clean if attacked is None else attacked)
        trial.set_user_attr("robust", robust)
        trial.set_user_attr("guessing", bool(guessing))
        return self.goal.value(clean, attacked, robust, guessing)


class _Reports(TrainerCallback):
    """Tells the study of every evaluation, and ends a trial that is behind the median of the others."""

    def __init__(self, trial: optuna.Trial, goal: Goal, news: Callable[[], None]) -> None:
        self._trial, self._goal, self._news = trial, goal, news
        self._told = 0

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        seen = [entry for entry in state.log_history if "eval_accuracy" in entry]  # of a resumed run, all of them
        for number, entry in enumerate(seen[self._told :], self._told + 1):
            figures = entry["eval_accuracy"], entry.get(ATTACKED), entry.get(METRIC), guesses(entry)
            self._trial.report(self._goal.value(*figures), number)
        self._told = len(seen)
        self._news()
        if state.global_step < state.max_steps and self._trial.should_prune():
            raise optuna.TrialPruned


def _drop_weights(folder: Path) -> None:
    for name in WEIGHTS:
        shutil.rmtree(folder / name, ignore_errors=True)
