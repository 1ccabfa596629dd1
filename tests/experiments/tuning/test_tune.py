"""A search from its first trial to its best recipe: repeated, interrupted, killed, pruned."""

from __future__ import annotations

import csv
import io
import json
import multiprocessing
import os
import signal
import time
from itertools import chain, repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import optuna
import pytest
from rich.console import Console

from rosewood.errors import DataError, ExperimentError, RecipeError, RosewoodError, RunError
from rosewood.experiments.tuning import study as studies
from rosewood.experiments.tuning import tune as tuning
from rosewood.experiments.tuning.search import Range, TuningGoal
from rosewood.experiments.tuning.study import Trials
from rosewood.experiments.tuning.trials import Tried, best_of, tried
from rosewood.recipe import load_recipe
from rosewood.training import assembly, callbacks
from rosewood.training.callbacks import TrainingProgress
from rosewood.words.lexicon import COUNTER_FITTED
from tiny_tuning import SEARCH, Place

OUTCOME = SimpleNamespace(robust_accuracy=0.5, clean_accuracy=0.7, attacked=True)
"""Of an attack that is not made."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    place = Place(tmp_path_factory.mktemp("tuning"))
    place.tune("whole")
    return place


def rows(output: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((output / "trials.csv").open()))


def test_the_best_trial_becomes_a_recipe_and_a_command(place: Place) -> None:
    found = place.tune("whole")  # which is finished: nothing is trained
    assert [each.number for each in found.trials] == [1, 2, 3, 4]
    assert {each.state for each in found.trials} == {"complete"}
    values = [each.value for each in found.trials if each.value is not None]
    assert found.best is not None and found.best.value == max(values)
    recipe = load_recipe(place.folder / "whole" / "best.yaml")
    assert recipe.training["learning_rate"] == found.best.settings["training.learning_rate"]
    assert recipe.training["num_train_epochs"] == 2
    assert found.command.startswith(f"rosewood train --recipe {place.folder}/whole/best.yaml --task {place.task}")
    written = rows(place.folder / "whole")
    assert [row["value"] for row in written] == [str(each.value) for each in found.trials]
    assert not list((place.folder / "whole" / "trials").glob("*/model")), "weights are not kept"
    (folder, *_) = (place.folder / "whole" / "trials").glob("*/history.jsonl")
    assert len(folder.read_text().splitlines()) == 8


@pytest.mark.slow  # the interruption below proves as much and more
def test_one_worker_finds_the_same_again_also_in_two_calls(place: Place) -> None:
    assert len(place.tune("again", trials=2).trials) == 2
    place.tune("again")
    for name in ("trials.csv", "best.yaml"):
        assert (place.folder / "again" / name).read_bytes() == (place.folder / "whole" / name).read_bytes()


def test_an_interrupted_study_goes_on_as_if_nothing_had_happened(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = iter(range(1, 1000))

    def pressed(self: Any, args: Any, state: Any, control: Any, **_: Any) -> None:
        if next(steps) in (11, 25):  # in the second trial, and in the fourth
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as there:
        there.setattr(TrainingProgress, "on_step_end", pressed)
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                place.tune("broken")
    assert len(rows(place.folder / "broken")) == 3
    place.tune("broken")
    for name in ("trials.csv", "best.yaml"):
        assert (place.folder / "broken" / name).read_bytes() == (place.folder / "whole" / name).read_bytes()


def test_a_study_is_of_one_kind(place: Place) -> None:
    with pytest.raises(ExperimentError, match="was begun with another search: give it those settings"):
        place.tune("whole", {"learning_rate": "1e-5..1e-1:log"})
    with pytest.raises(ExperimentError, match="was begun with another recipe and seed"):
        place.tune("whole", recipe="r-drop", seed=3)


def test_a_study_of_robustness_has_one_lexicon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, words = Place(tmp_path), tmp_path / COUNTER_FITTED
    words.parent.mkdir(parents=True)
    words.write_text('{"good": ["fine"]}')
    monkeypatch.setattr(callbacks, "robust_accuracy", lambda *_, **__: OUTCOME)
    settings: dict[str, Any] = {"objective": "robust", "attack": "pwws", "data_dir": str(tmp_path), "trials": 1}
    assert place.tune("out", **settings).best is not None
    words.write_text('{"good": ["nice"]}')
    with pytest.raises(ExperimentError, match="was begun with another training lexicon"):
        place.tune("out", **settings)


def test_a_trial_that_fails_stops_no_other(place: Place) -> None:
    found = place.tune("failing", {"training.optim": ["adamw_torch", "adafactor"]}, "rose-second", trials=5)
    states = {each.settings["training.optim"]: each.state for each in found.trials}
    assert states == {"adamw_torch": "complete", "adafactor": "failed"} and len(found.trials) == 5
    failed = next(each for each in found.trials if each.state == "failed")
    assert failed.error.startswith("RecipeError") and "masks AdamW's update" in failed.error and failed.value is None
    assert found.best is not None and found.best.settings["training.optim"] == "adamw_torch"


@pytest.mark.slow
def test_trials_behind_the_median_are_ended(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    shares = chain(repeat(0.9, 10), repeat(0.1))  # five trials of two epochs, then a bad one

    def attacked(*_: Any, **__: Any) -> Any:
        return SimpleNamespace(robust_accuracy=next(shares), clean_accuracy=1.0, attacked=True)

    monkeypatch.setattr(callbacks, "robust_accuracy", attacked)
    for module in (callbacks, studies, assembly):
        monkeypatch.setattr(module, "guesses", lambda metrics: False)
    found = place.tune("pruned", objective="mean", attack="typos", clean_weight=0.01, trials=6)
    assert [each.state for each in found.trials] == ["complete"] * 5 + ["pruned"]
    for each in found.trials[:5]:
        assert each.clean is not None and each.value == pytest.approx(0.01 * each.clean + 0.99 * 0.9)
    assert "--select-by typos --select-examples 100" in found.command


def test_a_terminal_shows_a_table_while_trials_run(place: Place) -> None:
    screen = io.StringIO()
    place.tune("live", console=Console(force_terminal=True, file=screen, width=140, height=40), trials=1)
    shown = screen.getvalue()
    assert "running" in shown and "complete" in shown and "1 of 1 trials" in shown and "learning_rate" in shown


def quietly(place: Place, output: str) -> None:
    with Path(os.devnull).open("w") as nothing:
        os.dup2(nothing.fileno(), 1)
        os.dup2(nothing.fileno(), 2)
        place.tune(output)


@pytest.mark.slow
def test_a_killed_worker_blocks_nobody(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a fork of this process, which has imported everything."""
    monkeypatch.setattr(studies, "HEARTBEAT", 1)
    monkeypatch.setattr(studies, "GRACE", 2)
    process = multiprocessing.get_context("fork").Process(target=quietly, args=(place, "killed"))
    process.start()
    trials = place.folder / "killed" / "trials"
    while process.is_alive() and not list(trials.glob("*/run.json")):
        time.sleep(0.002)
    os.kill(process.pid or 0, signal.SIGKILL)
    process.join()
    assert process.exitcode == -signal.SIGKILL
    found = place.tune("killed")
    assert [each.number for each in found.trials] == [1, 2, 3, 4]
    first = next(iter(place.tune("whole").trials))
    assert found.trials[0] == first, "the trial of the killed worker was done by another one"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"objective": "robst", "attack": "typos"}, r"unknown objective 'robst': did you mean robust\?"),
        ({"objective": "robust"}, "the objective robust needs an attack"),
        ({"attack": "typos"}, "the objective clean knows no attack"),
        ({"objective": "mean", "attack": "typos", "clean_weight": 1.5}, "clean_weight must lie between 0 and 1"),
        ({"objective": "robust", "attack": "typo"}, "unknown attack 'typo': did you mean typos"),
        ({"trials": 0}, "trials must be at least 1, got 0"),
        ({"storage": "nonsense"}, "the storage is no URL"),
        ({"storage": "postgresql://127.0.0.1:9/x?user=me&password=tell"}, "USER:PASSWORD@HOST, or PGPASSWORD"),
        ({"storage": "sqlite:////no/such/folder/study.db"}, "the storage sqlite:.*cannot be used: unable to open"),
        ({"storage": "postgresql://me:tell%20nobody@127.0.0.1:9/x"}, r"me:\*\*\*@127.0.0.1:9/x cannot be used"),
        ({"model": "/no/such/model"}, "no/such/model"),
        ({"recipe": "vanila"}, "did you mean vanilla"),
        ({"search": {"learning_rate": "2..1"}}, "is empty"),
        ({"task": "revews"}, "did you mean reviews"),
    ],
)
def test_bad_input_is_refused_before_any_trial(changes: dict[str, Any], message: str, place: Place) -> None:
    with pytest.raises(RosewoodError, match=message) as raised:
        place.tune("refused", **changes)
    assert isinstance(raised.value, ExperimentError | RecipeError | DataError | RosewoodError)
    assert "tell" not in str(raised.value)
    assert not list((place.folder / "refused").glob("trials/*"))


def test_an_output_that_is_a_file_is_refused(place: Place) -> None:
    (place.folder / "file").touch()
    with pytest.raises(RunError, match=r"file cannot be written: .*file is not a folder that you may write to"):
        place.tune("file")


def test_an_interruption_while_settings_are_drawn_loses_none(tmp_path: Path) -> None:
    def pressed() -> None:
        raise KeyboardInterrupt

    plan: Any = None  # nothing is trained
    study = optuna.create_study()
    with pytest.raises(KeyboardInterrupt):
        study.optimize(Trials(plan, {"rate": Range(0, 1)}, TuningGoal(), tmp_path, pressed), n_trials=1)
    first, waiting = study.trials
    assert first.state.name == "FAIL" and waiting.state.name == "WAITING"
    assert study.ask().suggest_float("rate", 0, 1) == first.params["rate"]


def test_a_trial_whose_workers_die_is_given_up_and_said_to_be() -> None:
    study = optuna.create_study()
    for life in range(3):
        trial = study.ask()
        study.tell(trial, state=optuna.trial.TrialState.FAIL)
        assert studies.ended(study) == [] or life == 2
        studies.retry_trial(study, study.trials[trial.number])
    assert not study.get_trials(states=[optuna.trial.TrialState.WAITING])
    (found,) = tried(study)
    assert (found.number, found.state, found.error) == (1, "failed", "its worker died 3 times")


def test_without_the_packages_it_says_what_to_install(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "find_spec", lambda name: None)
    with pytest.raises(ExperimentError, match=r"^tuning needs packages: pip install 'rosewood\[tune\]'$"):
        place.tune("missing", SEARCH)


def test_what_goals_are_worth() -> None:
    assert TuningGoal().value(0.8, None, None, False) == TuningGoal().value(0.8, None, None, True) == 0.8
    assert TuningGoal("robust", "typos").value(0.8, 0.9, 0.2, False) == 0.2
    mean = TuningGoal("mean", "typos", 0.75).value(0.9, attacked=0.8, robust=0.4, guessing=False)
    assert mean == pytest.approx(0.7), "0.9 is the accuracy on other examples"
    for goal in ("robust", "mean"):
        assert TuningGoal(goal, "typos").value(0.5, 0.5, 0.5, guessing=True) == 0, (
            "what always answers the same is not misled"
        )


def test_a_trial_at_guessing_is_the_best_only_where_all_are() -> None:
    def made(number: int, value: float, guessing: bool) -> Tried:
        return Tried(number, "complete", value, value, value, {}, "", guessing)

    found = [made(1, 0.6, True), made(2, 0.4, False), made(3, 0.3, False)]
    best = best_of(found)
    assert best is not None and best.number == 2
    last = best_of([made(1, 0.5, True), made(2, 0.6, True)])
    assert last is not None and last.number == 2 and last.guessing


def test_a_mean_is_of_the_same_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(tmp_path)
    monkeypatch.setattr(callbacks, "robust_accuracy", lambda *_, **__: OUTCOME)
    for module in (callbacks, studies, assembly):
        monkeypatch.setattr(module, "guesses", lambda metrics: False)
    found = place.tune("mean", SEARCH, objective="mean", attack="typos", trials=1)
    (only,) = found.trials
    assert (only.clean, only.robust, only.value) == (0.7, 0.5, pytest.approx(0.6))


def test_a_study_knows_its_settings_as_json(place: Place) -> None:
    import sqlite3

    with sqlite3.connect(place.folder / "whole" / "study.db") as database:
        (text,) = database.execute("select value_json from study_user_attributes").fetchone()
    assert set(json.loads(text)) >= {"recipe", "search", "objective", "model", "data", "seed"}
