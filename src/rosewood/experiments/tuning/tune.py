"""Search settings of a recipe: trials until there are enough, shared with other workers of the same study."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import get_console
from rich.console import Console

from rosewood.config.settings import RunSettings
from rosewood.data.loading import source_identity
from rosewood.data.tasks import Task, load_task
from rosewood.errors import ExperimentError
from rosewood.experiments.tuning.search import Space, TuningGoal, held_out, space_of
from rosewood.experiments.tuning.trials import TASK, TrialBoard, Tuning, save_outcome
from rosewood.models.names import folder_fingerprint
from rosewood.recipe import Recipe, deciding, load_recipe
from rosewood.results import write
from rosewood.tensors.shards import together
from rosewood.training.plan import Plan, lexicon_sources
from rosewood.training.run import check_run, check_writable

if TYPE_CHECKING:
    from optuna import Study

_PAUSE = 1.0
# The settings that the identity of a study has always had. Others are in it where they are not at their default, so
# that a new setting leaves older studies as they are.
IN_STUDIES = ("train_size", "validation_size", "max_length", "seed", "early_stopping", "select_examples", "lora")
# The identity has what the first three mean, and the others change no figure.
NOT_IN_STUDIES = ("model", "data_dir", "select_by", "watch", "watch_every")


def tune(
    search: Mapping[str, Any],
    recipe: str | Path | Recipe = "vanilla",
    task: str | Path | Task = "reviews",
    *,
    output: str | Path = "runs/tune",
    trials: int = 20,
    objective: str = "clean",
    attack: str | None = None,
    clean_weight: float = 0.5,
    training: Mapping[str, Any] | None = None,
    storage: str | None = None,
    study: str | None = None,
    console: Console | None = None,
    **settings: Any,
) -> Tuning:
    """Search settings of a recipe on data held out from training, and write the best ones to `output`.

    Test data are never read. The same call goes on with the study; other workers that name the same `storage` and
    `study` share it.

    Args:
        search: settings and their ranges or choices: `{"learning_rate": "1e-5..1e-3:log", "anchors.0.weight": [0.1,
            0.5]}`.
        recipe: the recipe whose settings are searched.
        task: a task, its name, or its YAML file.
        output: the folder for the trials, the table and the best recipe.
        trials: how many.
        objective: `clean` accuracy, `robust` accuracy under an attack, or their weighted `mean`.
        attack: the attack, for `robust` and `mean`.
        clean_weight: the weight of clean accuracy in `mean`.
        training: training arguments of transformers that all trials share.
        storage: the URL of a database, for several machines.
        study: the name of the study there.
        console: where the live table is shown.
        settings: those of a run, the fields of `RunSettings`, such as model, data_dir, train_size, max_length, seed.

    Returns:
        The best settings, and all trials.

    Raises:
        ExperimentError: the search cannot be run as asked.

    Example:
        >>> tune({"learning_rate": "1e-5..1e-3:log"}, "rose-second", "reviews", trials=10)  # doctest: +SKIP
    """
    if not isinstance(search, Mapping):
        raise ExperimentError(
            'search: expected a mapping of settings to ranges or choices, such as {"learning_rate": "1e-5..1e-3"}, '
            f"got {search!r}"
        )
    _check(trials)
    goal = TuningGoal(objective, attack, clean_weight)
    whole = task if isinstance(task, Task) else load_task(task)
    chosen = load_recipe(recipe, {f"training.{name}": value for name, value in (training or {}).items()})
    space, output = space_of(search, chosen), Path(output)
    check_writable(output)
    fixed = {"recipe": chosen, "task": held_out(whole), "select_by": attack}
    plan = Plan.checked(settings | fixed, ExperimentError)
    first = load_recipe(chosen, {path: each.tried[0] for path, each in space.items()})
    check_run(plan.model_copy(update={"recipe": first}))
    with _quiet_optuna():
        opened = _study(plan, space, goal, output, storage, study)
        again = _saved(task, output) if isinstance(task, Task) else str(task)
        try:
            _work(opened, plan, space, goal, output, trials, console or get_console())
        finally:
            outcome = save_outcome(opened, plan, again, output)
    return outcome


def _saved(task: Task, output: Path) -> str:
    """A file that `rosewood train --task` takes."""
    write(output / TASK, task.to_yaml())
    return str(output / TASK)


def _check(trials: int) -> None:
    if find_spec("optuna") is None:
        raise ExperimentError("tuning needs packages: pip install 'rosewood[tune]'")
    if trials < 1:
        raise ExperimentError(f"trials must be at least 1, got {trials}")
    if together():
        raise ExperimentError(
            "each worker of a search is one process: start several commands with the same --storage instead of torchrun"
        )


def _study(plan: Plan, space: Space, goal: TuningGoal, output: Path, storage: str | None, name: str | None) -> Study:
    from rosewood.experiments.tuning.study import open_study

    if storage is None:
        output.mkdir(parents=True, exist_ok=True)
    url = storage or f"sqlite:///{(output / 'study.db').resolve()}"
    return open_study(url, name or output.resolve().name, plan.seed, _identity(plan, space, goal))


def _identity(plan: Plan, space: Space, goal: TuningGoal) -> dict[str, Any]:
    """Everything that decides a trial's figure but its settings: a study of two kinds of figures would be none."""
    settings = plan.only(RunSettings).changed(always=IN_STUDIES)
    facts = {
        "recipe": deciding(plan.recipe.to_dict()),
        "search": {path: str(dimension) for path, dimension in space.items()},
        "objective": [
            goal.objective,
            goal.attack,
            goal.clean_weight,
            *(["on the same examples"] if goal.objective == "mean" else []),
        ],
        "model": folder_fingerprint(plan.model),
        "data": {name: source_identity(plan.task, name, plan.data_dir) for name in plan.task.splits},
        **lexicon_sources(plan.recipe, plan.select_by, plan.data_dir),
        **{name: value for name, value in settings.items() if name not in NOT_IN_STUDIES},
    }
    if goal.objective == "mean":  # older versions took clean accuracy on all held-out examples
        facts["mean"] = "on the same examples"
    found: dict[str, Any] = json.loads(json.dumps(facts))  # as the storage will give it back
    return found


def _work(
    study: Study, plan: Plan, space: Space, goal: TuningGoal, output: Path, wanted: int, console: Console
) -> None:
    """Trials until there are enough; the last ones of other workers are waited for, and taken over if they die."""
    from rosewood.experiments.tuning.study import Trials, ended, release_the_dead, running_trials

    board = TrialBoard(study, wanted, console)
    objective = Trials(plan, space, goal, output, board.refresh)
    with board.shown():
        while (missing := wanted - len(ended(study))) > 0:
            release_the_dead(study)
            if len(running_trials(study)) < missing:
                with warnings.catch_warnings(action="ignore", category=UserWarning):  # the check has said them
                    study.optimize(objective, n_trials=1, catch=(Exception,))
                save_outcome(study, plan, "", output)
            else:
                time.sleep(_PAUSE)
            board.refresh()


@contextmanager
def _quiet_optuna() -> Iterator[None]:
    """What it would log is in the table."""
    import optuna

    loudness = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(loudness)
