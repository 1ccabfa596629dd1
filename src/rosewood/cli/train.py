"""rosewood train and rosewood tune: fine-tune with a recipe, and search its settings on data held out from training."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich import get_console
from rich.console import Console

from rosewood.cli import app, check_files, check_models, examples, options_of_settings, resumable
from rosewood.cli.explain import check_recipe
from rosewood.cli.options import LABEL_COLUMN, TEXT_COLUMN, TRAIN_FILE, TRUSTED_MODEL
from rosewood.config.settings import DATA, RunSettings, TrainingShortcuts
from rosewood.errors import ExperimentError, RunError

if TYPE_CHECKING:
    from rosewood.data.tasks import Task


@app.command(
    epilog=examples(
        "rosewood train --recipe rose-ensemble --task reviews --output runs/rose",
        "rosewood train --recipe rose-first --task sst2 --set selection.keep_quantile=0.7",
        "rosewood train --recipe rose-second --train-file mine.csv --text-column text --label-column topic",
        "rosewood train --recipe rose-second --train-file mine.csv --class-weights balanced",
        "rosewood train --recipe rose-ensemble --task reviews --lora-rank 8",
        "rosewood train --recipe rift --task sst2 --select-by pwws --early-stopping 3",
        "rosewood train --recipe rose-ensemble --watch masks --watch drift --watch inconsistency",
        "rosewood train --recipe rose-ensemble --task reviews --report-to tensorboard,wandb",
        "rosewood train --output runs/rose --resume",
    )
)
@options_of_settings()
def train(
    context: typer.Context,
    recipe: str | None = typer.Option(
        None, help="A recipe of `rosewood list recipes`, NAME:VARIANT, or a YAML file.", show_default="vanilla"
    ),
    output: Path | None = typer.Option(
        None, "--output", "-o", help="The run directory.", show_default="runs/RECIPE-TASK-seedN"
    ),
    assignments: list[str] = typer.Option(
        [], "--set", help="Change one setting of the recipe: selection.keep_quantile=0.7 (repeatable)."
    ),
    task: str | None = typer.Option(
        None, help="A task of `rosewood list tasks`, or a YAML file.", show_default="reviews", rich_help_panel=DATA
    ),
    train_file: Path | None = TRAIN_FILE,
    eval_file: Path | None = typer.Option(
        None, help="Your own validation data.", show_default="a tenth of --train-file", rich_help_panel=DATA
    ),
    test_file: Path | None = typer.Option(None, help="Your own test data.", rich_help_panel=DATA),
    text_column: list[str] = TEXT_COLUMN,
    label_column: str = LABEL_COLUMN,
    settings: RunSettings = RunSettings(),  # noqa: B008  frozen
    shortcuts: TrainingShortcuts = TrainingShortcuts(),  # noqa: B008
    trust_remote_code: str | None = TRUSTED_MODEL,
    resume: bool = typer.Option(False, "--resume", help="Continue the interrupted run in --output."),
    overwrite: bool = typer.Option(False, "--overwrite", help="Replace the run in --output."),
) -> None:
    """Fine-tune a model with a recipe and write a run directory.

    Any other training argument of transformers is a setting too: --set training.bf16=true.
    """
    from rosewood.config.strict_yaml import parse_overrides
    from rosewood.data.tasks import load_task

    sources = {name: context.get_parameter_source(name) for name in context.params}
    given = [name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"]
    if resume:
        others = [
            f"--{name.replace('_', '-')}" for name in given if name not in ("resume", "output", "trust_remote_code")
        ]
        if output is None or others:
            raise RunError(
                "--resume takes its settings from the run: rosewood train --output RUN --resume"
                + (f" (leave out {', '.join(others)})" if others else "")
            )
    if "watch_every" in settings.model_fields_set and not settings.watch:
        raise RunError("--watch-every says how often, not what: add --watch drift, masks or inconsistency")
    if not resume:  # a name that is not there is said before torch is imported, which takes seconds
        check_recipe(recipe or "vanilla", parse_overrides(assignments))
        if task is not None:
            load_task(task)
        check_models([settings.model, *filter(None, [settings.pretrained])])
        check_files(train_file, [eval_file, test_file], text_column, label_column)
    from rosewood.recipe import load_recipe
    from rosewood.tensors.shards import is_first
    from rosewood.training.run import Interrupted, Plan, resume_run, settled, start_run

    console = Console(quiet=not is_first())
    try:
        if resume and output is not None:
            info = resume_run(output, trust_remote_code=trust_remote_code)
        else:
            files = {"train_file": train_file, "eval_file": eval_file, "test_file": test_file}
            chosen = load_recipe(recipe or "vanilla", parse_overrides(assignments))
            has_precision = "precision" in given or not chosen.training.keys().isdisjoint(("bf16", "fp16"))
            plan = Plan(
                recipe=chosen,
                task=_task(task, files, text_column, label_column),
                arguments=shortcuts.arguments(),
                trust_remote_code=trust_remote_code,
                **({} if has_precision else {"precision": "auto"}) | settings.given(),
            )
            output = output or Path("runs") / file_name(f"{plan.recipe.name}-{plan.task.name}-seed{plan.seed}")
            plan, remark = settled(plan)
            if remark:
                console.print(remark, highlight=False, markup=False)
            info = start_run(plan, output, overwrite)
    except Interrupted:
        console.print(f"Interrupted; nothing is lost. Continue with: rosewood train --output {output} --resume")
        raise typer.Exit(130) from None
    if is_first():
        report(output, info.seconds or 0.0, console)


def file_name(text: str) -> str:
    """A recipe or a task may be called anything; a folder of `runs` must stay one."""
    return re.sub(r"[^\w.+-]+", "-", text)[-100:].lstrip(".-")


def _task(name: str | None, files: dict[str, Path | None], text_columns: list[str], label_column: str) -> Task:
    from rosewood.data.loading import task_from_files
    from rosewood.data.tasks import load_task

    train_file = files["train_file"]
    if train_file is None:
        given = [f"--{key.replace('_', '-')}" for key, value in files.items() if value is not None]
        if given:
            raise RunError(f"{' and '.join(given)} needs --train-file: the labels are those of the training data")
        return load_task(name or "reviews")
    if name is not None:
        raise RunError("--task and --train-file both name the data: give one of them")
    return task_from_files(
        train_file,
        files["eval_file"],
        text_columns=text_columns or ["text"],
        label_column=label_column,
        test_file=files["test_file"],
    )


def report(output: Path, seconds: float, console: Console) -> None:
    """Say how a run ended and what to do next."""
    from rosewood.data.tasks import load_task
    from rosewood.results import Metrics

    metrics = Metrics.load(output / "metrics.json")
    accuracy = "" if metrics.validation_accuracy is None else f", validation accuracy {metrics.validation_accuracy:.1%}"
    if metrics.validation_majority is not None:
        accuracy += f" (largest class: {metrics.validation_majority:.1%})"
    if metrics.robust_validation_accuracy is not None:
        accuracy += f", {metrics.robust_validation_accuracy:.1%} under attack"
    steps = "1 step" if metrics.steps == 1 else f"{metrics.steps} steps"
    console.print(f"{steps} in {seconds:.0f} s{accuracy}. The run is in {output}", highlight=False)
    if metrics.at_guessing:
        if (metrics.validation_accuracy or 0.0) > (metrics.validation_majority or 0.0):
            why = (
                "the validation data are too few to tell whether the model is more accurate than the most frequent "
                "label. Give more of them with --eval-file, or train for longer."
            )
        else:
            why = (
                "on validation data the model is not more accurate than the most frequent label. Change the learning "
                "rate or train for longer before you compare it."
            )
        console.print(f"[yellow]at guessing:[/] {why}", highlight=False)
    splits = load_task(output / "task.yaml").splits
    own = "" if {"test", "validation"} & splits.keys() else " --test-file FILE"
    console.print(f"Next: rosewood evaluate {output}{own}", highlight=False)
    if "test" not in splits and not own:
        console.print("That measures on the validation data; --test-file FILE names test data of your own.")


OBJECTIVE = "Objective"


@app.command(
    epilog=examples(
        "rosewood tune --recipe rose-first --task reviews --search learning_rate=1e-5..1e-3:log",
        "rosewood tune --recipe rose-first --search selection.keep_quantile=0.3..0.9 --objective robust --attack typos",
        "rosewood tune --recipe mixout --search anchors.0.probability=0.1,0.5,0.9 --objective mean --attack pwws",
        "rosewood tune --search-file space.yaml --storage postgresql://me@host/studies --study rose",
    )
)
@options_of_settings(without=("select_by", "select_examples", "validation_size"))
def tune(
    recipe: str = typer.Option("vanilla", help="A recipe of `rosewood list recipes`, NAME:VARIANT, or a YAML file."),
    search: list[str] = typer.Option(
        [],
        metavar="SETTING=RANGE",
        help="What is searched: learning_rate=1e-5..1e-3:log, selection.keep_quantile=0.3..0.9, "
        "anchors.0.weight=0.1,0.5,1 (repeatable).",
    ),
    search_file: Path | None = typer.Option(None, help="A YAML file with more of them, SETTING: RANGE a line."),
    assignments: list[str] = typer.Option(
        [], "--set", help="Fix one setting of the recipe: selection.order=first (repeatable)."
    ),
    trials: int = typer.Option(20, min=1, help="Trials of the study, those of other workers included."),
    output: Path = typer.Option(Path("runs/tune"), "--output", "-o", help="Where best.yaml and trials.csv go."),
    storage: str | None = typer.Option(
        None,
        metavar="URL",
        help="Where the study is kept; with PostgreSQL many workers share it: postgresql://USER@HOST/DATABASE.",
        show_default="a file in --output",
    ),
    study: str | None = typer.Option(None, help="The name of the study.", show_default="that of --output"),
    objective: str = typer.Option("clean", help="clean, robust or mean.", rich_help_panel=OBJECTIVE),
    attack: str | None = typer.Option(
        None, help="The attack of robust and mean: typos or pwws.", rich_help_panel=OBJECTIVE
    ),
    attack_examples: int = typer.Option(
        100, min=1, help="Held-out examples that are attacked.", rich_help_panel=OBJECTIVE
    ),
    clean_weight: float = typer.Option(0.5, help="The share of clean accuracy in the mean.", rich_help_panel=OBJECTIVE),
    task: str | None = typer.Option(
        None, help="A task of `rosewood list tasks`, or a YAML file.", show_default="reviews", rich_help_panel=DATA
    ),
    train_file: Path | None = TRAIN_FILE,
    text_column: list[str] = TEXT_COLUMN,
    label_column: str = LABEL_COLUMN,
    held_out_size: int = typer.Option(1000, min=2, help="At most this many held-out examples.", rich_help_panel=DATA),
    settings: RunSettings = RunSettings(),  # noqa: B008  frozen
    shortcuts: TrainingShortcuts = TrainingShortcuts(),  # noqa: B008
    trust_remote_code: str | None = TRUSTED_MODEL,
) -> None:
    """Search settings of a recipe on held-out training data; never on test data.

    Trials that fall behind the median of the others after an epoch are ended early. Run the same command again to
    continue after Ctrl-C or a crash. Workers that name the same --storage and --study share the work.
    """
    # Runs write the command into run.json, and errors may show it: a password has no place in either.
    sys.argv = [_without_password(word) for word in sys.argv]
    from rosewood.config.strict_yaml import parse_overrides

    check_recipe(recipe, parse_overrides(assignments))
    check_models([settings.model, *filter(None, [settings.pretrained])])
    check_files(train_file, [], text_column, label_column)
    from rosewood.experiments.tuning.search import parse_search, read_search
    from rosewood.experiments.tuning.tune import tune as run_search
    from rosewood.recipe import load_recipe

    searched: dict[str, Any] = parse_search(search)
    if search_file is not None:
        searched = read_search(search_file) | searched
    console = get_console()
    with resumable(console):
        outcome = run_search(
            searched,
            load_recipe(recipe, parse_overrides(assignments)),
            _tuned_task(task, train_file, text_column, label_column),
            output=output,
            trials=trials,
            objective=objective,
            attack=attack,
            clean_weight=clean_weight,
            training=shortcuts.arguments(),
            storage=storage,
            study=study,
            validation_size=held_out_size,
            select_examples=attack_examples,
            trust_remote_code=trust_remote_code,
            **settings.given(),
        )
    from rosewood.experiments.tuning.trials import percent, trial_table, words

    console.print(trial_table(outcome.trials, f"{objective} accuracy on held-out training data"))
    if outcome.best is None:
        errors = [each.error for each in outcome.trials if each.error]
        raise ExperimentError(f"no trial came to its end; the first says: {errors[0] if errors else 'nothing'}")
    best = outcome.best
    if best.guessing:
        console.print(
            "[yellow]at guessing:[/] no trial has learnt the task. Search other learning rates, or train longer."
        )
    console.print(f"Best: trial {best.number}, {percent(best.value)}: {words(best.settings)}", highlight=False)
    console.print(f"Train with it:\n  {outcome.command}", highlight=False, soft_wrap=True)


def _tuned_task(name: str | None, train_file: Path | None, text_columns: list[str], label_column: str) -> str | Task:
    if train_file is None:
        return name or "reviews"
    if name is not None:
        raise ExperimentError("--task and --train-file both name the data: give one of them")
    from rosewood.data.loading import task_from_files

    return task_from_files(train_file, text_columns=text_columns or ["text"], label_column=label_column)


def _without_password(word: str) -> str:
    if "://" not in word:
        return word
    option, sign, url = word.partition("=") if word.startswith("--") else ("", "", word)
    try:
        from sqlalchemy import make_url
        from sqlalchemy.exc import ArgumentError
    except ImportError:
        return word  # nothing will be run
    try:
        return f"{option}{sign}{make_url(url).render_as_string(hide_password=True)}"
    except ArgumentError:
        return f"{option}{sign}***"
