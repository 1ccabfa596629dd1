"""A study in a file or a database: many workers may share it, and one that dies blocks nobody."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
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

from rosewood.errors import ExperimentError

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
                heartbeat_stale_trial_callback=begin_again,
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


def begin_again(study: optuna.Study, trial: FrozenTrial) -> None:
    """Have the settings of a trial whose worker died tried again, a few times."""
    kills = trial.user_attrs.get(KILLED, 0) + 1
    if kills <= KILLS:
        study.enqueue_trial(trial.params, user_attrs={CONTINUES: trial.number, KILLED: kills})


def put_back(study: optuna.Study, trial: optuna.Trial) -> None:
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


def under_way(study: optuna.Study) -> list[FrozenTrial]:
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
