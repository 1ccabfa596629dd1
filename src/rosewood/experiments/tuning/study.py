"""A study in a file or a database, and its trials: many workers may share it, and one that dies blocks nobody."""

from __future__ import annotations

import math
import shutil
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import BaseSampler, TPESampler
from optuna.storages import RDBStorage, fail_stale_trials
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from transformers import TrainerCallback

from rosewood.errors import ExperimentError
from rosewood.experiments.tuning.search import Space, TuningGoal
from rosewood.recipe import load_recipe
from rosewood.results import Metrics
from rosewood.results.files import fingerprint_of
from rosewood.results.work_folder import clear, held
from rosewood.training.callbacks import ATTACKED, METRIC, Interrupted, guesses
from rosewood.training.plan import Plan
from rosewood.training.run import finish_run

HEARTBEAT, GRACE = 10, 40  # seconds: how often a worker says that it lives, and how long others wait to hear it
KILLS = 2  # how often a trial whose worker died is begun again
SETTINGS, ERROR, CONTINUES, KILLED = "settings", "error", "continues", "killed"
FINISHED = (TrialState.COMPLETE, TrialState.PRUNED)


def open_study(storage: str, name: str, seed: int, settings: dict[str, Any]) -> optuna.Study:
    """The study of that name, new or as it was left; one with other settings is refused."""
    url = _url(storage)
    with warnings.catch_warnings(action="ignore", category=ExperimentalWarning):
        study = optuna.create_study(
            storage=_opened(url),
            study_name=name,
            direction="maximize",
            sampler=SeededByPlace(seed),
            pruner=optuna.pruners.MedianPruner(),
            load_if_exists=True,
        )
    known = study.user_attrs.get(SETTINGS)
    if known is None:
        study.set_user_attr(SETTINGS, settings)
    elif known != settings:
        differing = [key for key in settings if known.get(key) != settings[key]]
        raise ExperimentError(
            f"the study {name} in {hidden(storage)} was begun with another {' and '.join(differing) or 'version'}: "
            "give it those settings, or choose another --study or --output"
        )
    return study


def hidden(storage: str) -> str:
    """A URL as it may be shown: without its password."""
    try:
        return make_url(storage).render_as_string(hide_password=True)
    except ArgumentError:
        return "the storage"


def _url(storage: str) -> URL:
    try:
        url = make_url(storage)
    except ArgumentError:  # whose message would show the whole of it
        raise ExperimentError(
            "the storage is no URL: expected postgresql://USER@HOST/DATABASE or sqlite:///FILE"
        ) from None
    if "password" in url.query:
        raise ExperimentError(
            "the storage has a password after its ?, where it would be shown: USER:PASSWORD@HOST, or PGPASSWORD"
        )
    plain = url.drivername in ("postgresql", "postgres")
    return url.set(drivername="postgresql+psycopg") if plain else url


def _opened(url: URL) -> RDBStorage:
    """Two workers that create the tables at the same moment are in each other's way once."""
    patience = {"timeout": 60} if url.drivername.startswith("sqlite") else {"connect_timeout": 10}
    for attempt in range(5):
        try:
            return RDBStorage(
                url.render_as_string(hide_password=False),
                engine_kwargs={"connect_args": patience},
                heartbeat_interval=HEARTBEAT,
                grace_period=GRACE,
                heartbeat_stale_trial_callback=retry_trial,
            )
        except (SQLAlchemyError, ImportError, TypeError) as error:
            raced = isinstance(error, SQLAlchemyError) and "exists" in str(error)
            if not raced or attempt == 4:
                raise _unreachable(url, error) from None
            time.sleep(0.5)
    raise AssertionError


def _unreachable(url: URL, error: Exception) -> ExperimentError:
    reason = str(getattr(error, "orig", None) or error).strip()
    shown = reason.replace(url.password, "***") if url.password else reason
    return ExperimentError(f"the storage {hidden(str(url))} cannot be used: {shown.splitlines()[0]}")


def retry_trial(study: optuna.Study, trial: FrozenTrial) -> None:
    """Have the settings of a trial whose worker died tried again, a few times."""
    kills = trial.user_attrs.get(KILLED, 0) + 1
    if kills <= KILLS:
        study.enqueue_trial(trial.params, user_attrs={CONTINUES: trial.number, KILLED: kills})


def requeue(study: optuna.Study, trial: optuna.Trial) -> None:
    """Have an interrupted trial gone on with first."""
    kept = {key: value for key, value in trial.user_attrs.items() if key == KILLED}
    study.enqueue_trial(trial.params, user_attrs={CONTINUES: trial.number, **kept})


def release_the_dead(study: optuna.Study) -> None:
    """Take trials from workers that have not been heard of."""
    with warnings.catch_warnings(action="ignore", category=ExperimentalWarning):
        fail_stale_trials(study)


def ended(study: optuna.Study) -> list[FrozenTrial]:
    """Trials that nobody will go on with: with a figure, pruned, failed, or given up because their workers died."""
    found = study.get_trials(deepcopy=False)
    continued = {each.user_attrs.get(CONTINUES) for each in found}
    return [each for each in found if each.state in FINISHED or (error_of(each) and each.number not in continued)]


def error_of(trial: FrozenTrial) -> str:
    """Why a trial has no figure; empty if it has one, or may still come to one."""
    given_up = trial.state == TrialState.FAIL and trial.user_attrs.get(KILLED) == KILLS
    return str(trial.user_attrs.get(ERROR, f"its worker died {KILLS + 1} times" if given_up else ""))


def running_trials(study: optuna.Study) -> list[FrozenTrial]:
    """Trials that somebody works on, or did a moment ago."""
    return study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))


def place_of(number: int, trials: Sequence[FrozenTrial]) -> int:
    """A trial's place among all settings that were drawn; one that goes on has the place of its beginning."""
    by_number = {trial.number: trial for trial in trials}
    while number in by_number and CONTINUES in by_number[number].user_attrs:
        number = by_number[number].user_attrs[CONTINUES]
    return number - sum(CONTINUES in trial.user_attrs for trial in trials if trial.number < number)


class SeededByPlace(BaseSampler):
    """TPE with random numbers of a trial's own, so that a study that goes on draws what it would have drawn."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._inner: BaseSampler = TPESampler(seed=seed)

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        place = place_of(trial.number, study.get_trials(deepcopy=False))
        self._inner = TPESampler(seed=int(np.random.SeedSequence([self._seed, place]).generate_state(1)[0]))

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self._inner.infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return self._inner.sample_relative(study, trial, search_space)

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        return self._inner.sample_independent(study, trial, param_name, param_distribution)


WEIGHTS = ("model", "adapter", "checkpoints")


@dataclass(frozen=True)
class Trials:
    """What all trials of a study share; called by Optuna with each of them."""

    plan: Plan
    space: Space
    goal: TuningGoal
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
            requeue(trial.study, trial)
            raise KeyboardInterrupt from None
        except optuna.TrialPruned:
            raise
        except Exception as error:
            trial.set_user_attr(ERROR, f"{type(error).__name__}: {error}")
            raise

    def _folder(self, trial: optuna.Trial, settings: dict[str, Any]) -> Path:
        """The same for the same settings, so that a trial that is begun again goes on where it stopped."""
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

    def __init__(self, trial: optuna.Trial, goal: TuningGoal, news: Callable[[], None]) -> None:
        self._trial, self._goal, self._news = trial, goal, news
        self._reported = 0

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        seen = [entry for entry in state.log_history if "eval_accuracy" in entry]  # of a resumed run, all of them
        for number, entry in enumerate(seen[self._reported :], self._reported + 1):
            figures = entry["eval_accuracy"], entry.get(ATTACKED), entry.get(METRIC), guesses(entry)
            self._trial.report(self._goal.value(*figures), number)
        self._reported = len(seen)
        self._news()
        if state.global_step < state.max_steps and self._trial.should_prune():
            raise optuna.TrialPruned


def _drop_weights(folder: Path) -> None:
    for name in WEIGHTS:
        shutil.rmtree(folder / name, ignore_errors=True)
