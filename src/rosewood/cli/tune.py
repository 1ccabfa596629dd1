"""rosewood tune: search a recipe's settings on data held out from training."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich import get_console

from rosewood.cli import app, examples, resumable
from rosewood.cli.explain import check_recipe
from rosewood.cli.options import check_files, check_models, options_of_settings
from rosewood.config.settings import DATA, TRAINING, RunSettings, TrainingShortcuts
from rosewood.errors import ExperimentError

if TYPE_CHECKING:
    from rosewood.data.tasks import Task

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
    train_file: Path | None = typer.Option(
        None, help="Your own training data: CSV, TSV, JSON Lines or Parquet.", rich_help_panel=DATA
    ),
    text_column: list[str] = typer.Option(
        [], help="Column with the text; twice for pairs.", show_default="text", rich_help_panel=DATA
    ),
    label_column: str = typer.Option("label", help="Column with the label.", rich_help_panel=DATA),
    held_out_size: int = typer.Option(1000, min=2, help="At most this many held-out examples.", rich_help_panel=DATA),
    settings: RunSettings = RunSettings(),  # noqa: B008  frozen
    shortcuts: TrainingShortcuts = TrainingShortcuts(),  # noqa: B008
    trust_remote_code: str | None = typer.Option(
        None, metavar="MODEL", help="Run the code that this model brings along.", rich_help_panel=TRAINING
    ),
) -> None:
    """Search settings of a recipe on held-out training data; never on test data.

    Trials that fall behind the median of the others after an epoch are ended early. Given again after Ctrl-C or a
    crash, the command goes on; workers that name the same --storage and --study share the work.
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
            _task(task, train_file, text_column, label_column),
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
    from rosewood.experiments.tuning.outcome import percent, trial_table, words

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


def _task(name: str | None, train_file: Path | None, text_columns: list[str], label_column: str) -> str | Task:
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
