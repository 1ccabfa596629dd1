"""Harden a classifier: measure it, race defences within a time budget, and keep the best one if it is really better."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich import get_console
from rich.console import Console

from rosewood.config.settings import RunSettings
from rosewood.data.loading import load_split, source_identity
from rosewood.data.tasks import Task, load_task
from rosewood.errors import ExperimentError
from rosewood.evaluation.evaluate import evaluate
from rosewood.experiments.engines.local import CellEngine
from rosewood.experiments.harden.before_and_after import (
    AFTER,
    BEFORE,
    TEST,
    changes,
    is_better,
    judge,
    other_lexicon,
    sentence_of,
)
from rosewood.experiments.harden.board import Board, commands, export
from rosewood.experiments.harden.candidates import (
    START,
    defence_of,
    encodes,
    entrants,
    threat_names,
    untrained,
    wrappers,
)
from rosewood.experiments.harden.costs import measured_costs
from rosewood.experiments.harden.race import FILE, Here, Race, bars_on_terminals_only
from rosewood.experiments.harden.schedule import LEAST_STEPS, Stopwatch, counted, planned, seconds_of, ticking
from rosewood.experiments.harden.stage import (
    FOLDER,
    RUN,
    Work,
    chooses_and_judges,
    choosing_task,
    divide,
    own_rows,
    train_until,
    training_task,
    weights_of,
)
from rosewood.models.modes import accelerated, has_bfloat16
from rosewood.models.names import folder_fingerprint
from rosewood.models.open import load_classifier, outline_of
from rosewood.models.origin import origin_of
from rosewood.models.scoring import name_outputs
from rosewood.recipe import deciding, load_recipe
from rosewood.results import Hardening, Schedule
from rosewood.results.files import fingerprint_of
from rosewood.results.run import typed_command
from rosewood.results.work_folder import held
from rosewood.training.callbacks import Interrupted
from rosewood.training.plan import in_order_of_outputs
from rosewood.training.run import Plan, check_writable

PLAIN_SHARE, PLAIN_EPOCHS = 0.3, 3
"""What plain fine-tuning takes at most, where the model is not a classifier yet: of the budget, and of the rows."""
SEEN = (
    "a tenth of the training rows chooses between candidates. If your model was trained on them, it looks better there "
    "than it is: give rows that it has not seen with --eval-file"
)
UNKNOWN_ORIGIN = (
    "your model does not say what it was fine-tuned from, so recipes that start from the pre-trained model start from "
    "yours: name that one with --pretrained"
)
DECIDING = ("train", "validation", "test")
"""Splits of which other files are another hardening; of test data the bytes are hashed, and no row is read."""
ALLOWED = {"labels", "pretrained", "max_length", "class_weights", "seed", "data_dir", "train_size", "precision"}
"""The settings of a run that a hardening takes."""


def harden(
    model: str | Path,
    task: str | Path | Task | None = None,
    *,
    train_file: str | Path | None = None,
    eval_file: str | Path | None = None,
    test_file: str | Path | None = None,
    text_columns: Sequence[str] = (),
    label_column: str = "label",
    threats: str | Sequence[str] = "words,characters",
    budget: str | float = "2h",
    max_clean_loss: float = 1.0,
    max_cost: float = 1.0,
    output: str | Path = "hardened",
    candidates: Sequence[str] = (),
    wrapped: Sequence[str] | None = None,
    lexicon: str | None = None,
    training: Mapping[str, Any] | None = None,
    engine: CellEngine | None = None,
    console: Console | None = None,
    schedule: Schedule | None = None,
    watch: Stopwatch | None = None,
    **settings: Any,
) -> Hardening:
    """Find the best defence for a model and its data, and keep it if it is really better.

    The model is measured on rows held out from training. Then recipes race within the time budget: all get a short
    training, the better half goes on, and what can be made of the finalists without training (mixtures of weights,
    wrappers) is measured too. One candidate within the limits meets the test rows, which nobody has read before, beside
    the model as it was: the most robust one or, of those that cannot be told from it, the most accurate. The same call
    goes on after Ctrl-C or a crash, and ends with the same model.

    Args:
        model: a fine-tuned classifier (its folder, a run, a name on the Hub), or a pre-trained model, which is then
            fine-tuned plainly first.
        task: a task, its name or its YAML file; or give `train_file`.
        train_file: own training data: CSV, TSV, JSON Lines or Parquet.
        eval_file: own rows to choose by, which the model has not been trained on; by default a tenth of the training
            data is held out.
        test_file: own test data, read once, at the end. Without any, another tenth of the training data is kept back.
        text_columns: columns of the files with texts, by default `text`.
        label_column: the column with labels.
        threats: `words`, `characters`, `all`, or attacks by name, with commas. Robust means right under all of them.
        budget: time for everything: `2h`, `90m`, or seconds.
        max_clean_loss: points of clean accuracy that the result may be below the model as it is.
        max_cost: passes of the network for one text, at most; 1 leaves out ensembles.
        output: the folder for everything; the result is a run like any other.
        candidates: recipes to race, such as `augment` or `rose-ensemble:fast@pretrained`; by default some that suit the
            threats.
        wrapped: defences to try around models, such as `corrected`; by default those that suit threats and cost.
        lexicon: words that may replace each other.
        training: training arguments of transformers that all candidates share.
        engine: where candidates run; by default one after the other in this process.
        console: where progress is shown.
        schedule: the race as it shall be run, whatever it takes; by default one is planned that fits the budget.
        watch: measures times; for tests.
        settings: of a run: `max_length`, `seed`, `data_dir`, `train_size`, `labels`, `pretrained`, `class_weights`,
            and `precision`, of training and of the search of attacks, by default `auto`.

    Returns:
        All that was measured and decided; `outcome` says whether the model is `hardened` or `unchanged`.

    Raises:
        ExperimentError: the budget is too short, or the folder holds another hardening.
        DataError: the data cannot be used.
        RunError: the model cannot be used.

    Example:
        >>> found = harden("my-model", train_file="mine.csv", threats="typos", budget="15m")  # doctest: +SKIP
        >>> found.outcome, found.sentence  # doctest: +SKIP
    """
    unknown = sorted(set(settings) - ALLOWED)
    if unknown:
        raise ExperimentError(f"harden has no setting {unknown[0]!r}: expected {', '.join(sorted(ALLOWED))}")
    output = Path(output)
    named = {"model": _classifier_of(str(model)), "precision": "auto"}
    asked = RunSettings.checked(named | settings, ExperimentError)
    if asked.precision == "auto":  # here and now, so that all candidates have the same
        asked = asked.model_copy(update={"precision": "bfloat16" if has_bfloat16() else "float32"})
    names = threat_names(threats)
    around = wrappers(names, max_cost, wrapped)
    racing = entrants(names, candidates, around, lexicon)
    files = {"train_file": train_file, "eval_file": eval_file, "test_file": test_file}
    whole = _task(task, files, list(text_columns), label_column)
    facts = {
        "model": folder_fingerprint(asked.model),
        "data": {name: source_identity(whole, name, asked.data_dir) for name in DECIDING if name in whole.splits},
        "settings": asked.model_dump(mode="json", exclude={"model", "data_dir"}),
        "candidates": [[each.origin, deciding(each.recipe.to_dict())] for each in racing],
        "wrapped": around,
        "threats": names,
        "limits": [seconds_of(budget), max_clean_loss, max_cost],
        "training": dict(training or {}),
        "lexicon": lexicon,
        "schedule": schedule and schedule.model_dump(mode="json"),
    }
    check_writable(output)
    with held(output):
        identity = fingerprint_of(facts, ordered=False)
        state = _opened(output, identity)
        divide(whole, output, asked.data_dir)
        begun = state or Hardening(
            identity=identity,
            command=typed_command(),
            model=str(model),
            start="",
            pretrained="",
            task=whole.name,
            threats=names,
            budget=seconds_of(budget),
            max_clean_loss=max_clean_loss,
            max_cost=max_cost,
            schedule=schedule,
        )
        if begun.outcome is not None:
            return begun
        chosen = watch or Stopwatch(before=max(begun.spent, counted(output, identity)))
        board = Board(console or get_console(), output, chosen)
        base = Work(
            candidate=START,
            kind="ready",
            output=str(output.resolve()),
            stage=0,
            clean_rows=0,
            attacked_rows=0,
            threats=names,
            black_box=bool(around),
            max_length=asked.max_length,
            seed=asked.seed,
            data_dir=asked.data_dir,
            lexicon=lexicon,
            precision="bfloat16" if asked.precision == "bfloat16" else "float32",
            model=asked.model,
            arguments=dict(training or {}),
            settings=_of_runs(asked),
        )
        race = Race(begun, output, base, racing, around, engine or Here(), chosen, board.news)
        with board.shown(), ticking(chosen, output, identity):
            try:
                return _hardened(race, asked, held_out=chooses_and_judges(whole)[0] is None)
            except Interrupted:
                raise KeyboardInterrupt from None
            finally:
                if race.state.start:
                    race.update()


def _hardened(race: Race, asked: RunSettings, held_out: bool) -> Hardening:
    _begin(race, asked, held_out)
    _look_at_start(race)
    _plan(race)
    assert race.state.schedule is not None
    rows = {"clean_rows": race.state.schedule.clean_rows, "attacked_rows": race.state.schedule.attacked_rows}
    race.base = race.base.model_copy(update=rows)
    winner = race.state.winner or race.run()
    before, after = race.output / TEST / BEFORE, race.output / TEST / AFTER
    test_rows = race.test_rows()
    race.news(race.state, f"{winner} is the choice on held-out rows; now the test rows, which nobody has read yet")
    other = other_lexicon(race.base) if encodes(defence_of(winner)) else None
    judge(Path(race.base.model), before, race.base, test_rows, other)
    better, kept = False, ""
    if winner != START:
        found = race.run_of(winner)
        judge(weights_of(found), after, race.base, test_rows, other)
        race.update(changes=changes(before, after, race.state.threats, other), reproduce=commands(race, winner))
        better = is_better(race.state.changes, race.state.max_clean_loss)
        kept = str(found.resolve().relative_to(race.output.resolve()))
    race.update(sentence=sentence_of(race.state, kept))
    export(race, better)
    race.update(outcome="hardened" if better else "unchanged")  # last: where it is, all is
    return race.state


def _classifier_of(model: str) -> str:
    """The model itself, of a run its model."""
    return str(Path(model) / "model") if (Path(model) / "run.json").exists() else model


def _task(
    task: str | Path | Task | None, files: Mapping[str, str | Path | None], text_columns: list[str], label_column: str
) -> Task:
    train, *others = (None if file is None else Path(file) for file in files.values())
    if (task is None) == (train is None):
        raise ExperimentError("name the data: either a task, or a training file (--train-file) of your own")
    if train is not None:
        return own_rows(train, others[0], others[1], text_columns, label_column)
    if any(others):
        raise ExperimentError("--eval-file and --test-file belong to --train-file: a task has data of its own")
    assert task is not None
    return task if isinstance(task, Task) else load_task(task)


def _opened(output: Path, identity: str) -> Hardening | None:
    """What an earlier start has left, if it had the same settings and data."""
    if not (output / FILE).exists():
        return None
    found = Hardening.load(output / FILE)
    if found.identity != identity and found.schedule is None and found.plain_steps is None:
        shutil.rmtree(output / FOLDER, ignore_errors=True)  # nothing was trained yet: other settings start afresh
        return None
    if found.identity != identity:
        raise ExperimentError(
            f"{output} holds another hardening (other settings, model or data): choose another --output"
        )
    return found


def _of_runs(asked: RunSettings) -> dict[str, Any]:
    """What the runs of candidates are given beside what every work has."""
    given = asked.given()
    return {name: given[name] for name in ("train_size", "class_weights") if name in given}


def _begin(race: Race, asked: RunSettings, held_out: bool) -> None:
    """Settle what is hardened: the classifier as it was given, or one that is fine-tuned plainly here.

    A classifier may have seen the rows that choose, if they were held out from the training rows here.
    """
    start = outline_of(asked.model)
    origin = origin_of(asked.model, start, asked.pretrained).name
    task = training_task(race.output)
    race.base = race.base.model_copy(update={"pretrained": origin})
    place = race.folder(START)
    if start.has_head:
        if held_out and not race.state.start:
            race.news(race.state, SEEN)
        if origin == asked.model and any(each.origin == "pretrained" for each in race.entrants):
            race.news(race.state, UNKNOWN_ORIGIN)
        in_order_of_outputs(Plan(recipe=load_recipe("vanilla"), task=task, **asked.given()), start)
        is_plain = (Path(asked.model) / "config.json").exists() and asked.labels is None
        model = Path(asked.model).resolve() if is_plain else _copied(asked, place / "model")
    else:
        recipe = load_recipe("vanilla")
        plan = race.base.model_copy(update={"recipe": recipe.to_dict(), "pretrained": origin}).plan()
        fixed = race.state.schedule and race.state.schedule.plain_steps
        if race.state.plain_steps is None and fixed:
            race.update(plain_steps=fixed)
        elif race.state.plain_steps is None:
            race.news(race.state, "the model is not a classifier yet: measuring a step of plain fine-tuning")
            with bars_on_terminals_only():
                affordable = PLAIN_SHARE * race.state.budget / race.watch.step(plan, "vanilla")
            wanted = PLAIN_EPOCHS * _steps(race)
            race.update(plain_steps=max(LEAST_STEPS, int(min(affordable, wanted))))
        steps = race.state.plain_steps
        assert steps is not None
        race.news(race.state, f"plain fine-tuning, {steps} steps")
        plan = plan.model_copy(update={"arguments": plan.arguments | {"max_steps": steps}})
        with bars_on_terminals_only():
            model = weights_of(train_until(plan, place / RUN, steps)).resolve()
    race.base = race.base.model_copy(update={"model": str(model)})
    race.update(start=str(model), pretrained=origin)


def _look_at_start(race: Race) -> None:
    """What no candidate is chosen by, of the model as it is, on held-out rows: noise and calibration."""
    folder = race.folder(START)
    if (folder / "evaluation.json").exists():
        return
    model, tokenizer = load_classifier(race.base.model)
    found = evaluate(
        accelerated(model),
        tokenizer,
        choosing_task(race.output),
        data_dir=race.base.data_dir,
        size=None if race.state.schedule is None else race.state.schedule.clean_rows,
        max_length=race.base.max_length,
        seed=race.base.seed,
        output=folder,
        progress=False,
    )
    noise = [f"{each.name} {each.accuracy:.1%}" for each in found.sets if each.role == "noise"]
    clean = next(each for each in found.sets if each.role == "clean")
    said = f"clean {clean.accuracy:.1%}, {', '.join(noise)}, calibration error {clean.ece:.1%}"
    race.news(race.state, f"your model on {clean.examples} held-out rows: {said}")


def _copied(asked: RunSettings, place: Path) -> Path:
    """A classifier that is not a plain folder, or whose outputs are given names: as a folder that has all of it."""
    if not place.exists():
        model, tokenizer = load_classifier(asked.model)
        if asked.labels is not None:
            name_outputs(model, asked.labels)
        with TemporaryDirectory(dir=_made(place.parent)) as folder:
            model.save_pretrained(Path(folder) / "model")
            tokenizer.save_pretrained(Path(folder) / "model")
            (Path(folder) / "model").rename(place)
    return place.resolve()


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _steps(race: Race) -> int:
    """Optimiser steps of one pass over the training rows."""
    plan = race.base.model_copy(update={"recipe": load_recipe("vanilla").to_dict()}).plan()
    arguments = plan.training_arguments()
    batch = arguments["per_device_train_batch_size"] * arguments.get("gradient_accumulation_steps", 1)
    rows = len(load_split(plan.task, "train", plan.data_dir, plan.train_size, plan.seed))
    return math.ceil(rows / batch)


def _plan(race: Race) -> None:
    """Measure what things take, and write down the race that fits; only at the first start."""
    if race.state.schedule is not None:
        return
    race.news(race.state, "measuring how long a step and an attack take")
    costs = measured_costs(race)
    choosing = len(load_split(choosing_task(race.output), "test"))
    spent = race.watch.spent(race.output)
    schedule = planned(
        race.state.budget,
        spent,
        costs,
        [each.name for each in race.entrants],
        {"choosing": choosing, "steps": _steps(race)},
        len(race.around),
        len(untrained(race.entrants[:2], race.around)),
        race.attacks,
    )
    race.update(_plan_in_words(schedule, race), costs=costs, schedule=schedule, planned_at=spent)


def _plan_in_words(schedule: Schedule, race: Race) -> str:
    """The plan in words, with those that there is no time for."""
    keep = schedule.keep
    found = f"planned: {', then '.join(map(str, keep))} candidate{'' if keep[-1] == 1 else 's'}"
    left_out = [each.name for each in race.entrants if each.name not in schedule.entrants]
    return f"{found}; the budget has no time for {', '.join(left_out)}" if left_out else found
