"""rosewood evaluate: how right a model stays on clean, shifted, adversarial and noisy text."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

from rosewood.cli import app, check_models, examples
from rosewood.cli.options import (
    BATCH_SIZE,
    OUTPUT_NAMES,
    RUN_DATA_DIR,
    RUN_TASK,
    TEST_FILE,
    TEST_LABEL_COLUMN,
    TEST_TEXT_COLUMN,
    TRUSTED_RUNS,
)
from rosewood.config.settings import LARGEST_SEED, names_in
from rosewood.errors import RunError

if TYPE_CHECKING:
    from rosewood.data.tasks import Task
    from rosewood.results import Evaluation, TestFile


@app.command(
    epilog=examples(
        "rosewood evaluate runs/vanilla runs/rose",
        "rosewood evaluate runs/vanilla runs/rose --suite sentiment",
        "rosewood evaluate ./my-checkpoint --task sst2",
        "rosewood evaluate runs/vanilla ./my-checkpoint --test-file mine.csv --label-column topic",
        "rosewood evaluate org/model-on-the-hub --suite reviews --labels negative,positive",
    )
)
def evaluate(
    runs: list[str] = typer.Argument(help="Run directories, checkpoint folders or Hub names."),
    suite: str | None = typer.Option(
        None, help="A suite of `rosewood list suites`, or its YAML file.", show_default="the task's own sets"
    ),
    task: str | None = RUN_TASK,
    test_file: Path | None = TEST_FILE,
    text_column: list[str] = TEST_TEXT_COLUMN,
    label_column: str | None = TEST_LABEL_COLUMN,
    data_dir: Path | None = RUN_DATA_DIR,
    size: int | None = typer.Option(None, min=2, help="At most this many examples of each set."),
    batch_size: int = BATCH_SIZE,
    max_length: int | None = typer.Option(
        None, min=4, help="Tokens per text.", show_default="the suite's, run's or tokenizer's"
    ),
    labels: str | None = OUTPUT_NAMES,
    by_class: bool = typer.Option(
        False, "--by-class", help="Also show precision, recall and F1 of each label, and confusion matrices."
    ),
    group: list[str] = typer.Option([], help="Also show accuracy by this column of the data (repeatable)."),
    attack: list[str] = typer.Option([], help="Attack the model live, such as pwws or typos (repeatable)."),
    attack_examples: int = typer.Option(100, min=1, help="Examples of the clean set to attack."),
    typo_rate: float | None = typer.Option(
        None,
        min=0.0,
        max=1.0,
        help="Typos in this share of the words as the only noise; 0: no noise (tasks and own files).",
        show_default="the task's noises, or typos at 0.3; every noise on own files",
    ),
    seed: int = typer.Option(0, min=0, max=LARGEST_SEED, help="Seed of samples, noise and attacks."),
    output: Path | None = typer.Option(
        None, "--output", "-o", help="Where the results go.", show_default="the folder of the run or checkpoint"
    ),
    fresh: bool = typer.Option(False, "--fresh", help="Compute predictions again that were kept in RUN/cache."),
    trust_remote_code: list[str] = TRUSTED_RUNS,
) -> None:
    """Evaluate runs, or any classification checkpoints, and print their tables.

    The results are also written to evaluation.json in the folder of the run or checkpoint and, with every prediction,
    under the name of the suite. For a name on the Hub nothing is kept without --output.
    """
    from rosewood.comparison.table import class_grids, render
    from rosewood.results.grid import Folded

    if output is not None and len(runs) > 1:
        raise RunError("--output is the folder of one checkpoint: evaluate several one by one")
    check_models(runs, trained=True)
    own = own_file(test_file, text_column, label_column, task, suite)
    if output is not None:
        from rosewood.training.run import check_writable  # slow

        check_writable(output)
    for run in runs:  # all of them before the first, which may take minutes
        check_run(run, task, suite, own)
    console = Console()
    if max_length is None and suite is None:
        max_length = common_length(runs, trust_remote_code, console)
    evaluations, before = {}, {run: _kept_sets(output or results_folder(run)) for run in runs}
    for run in runs:
        evaluations[run] = evaluate_one(
            run,
            task,
            data_dir,
            size,
            batch_size,
            typo_rate,
            seed,
            trust_remote_code,
            suite=suite,
            own=own,
            max_length=max_length,
            labels=names_in(labels),
            groups=group,
            attacks=attack,
            attack_examples=attack_examples,
            output=output,
            fresh=fresh,
        )
    console.print(render(evaluations))
    if by_class:
        console.print(*map(Folded, class_grids(evaluations)))
    for reason in dict.fromkeys(_remarks(evaluations)):
        console.print(reason, highlight=False)
    for run, evaluation in evaluations.items():
        lost = before[run].get((evaluation.suite, evaluation.task), set()) - {each.name for each in evaluation.sets}
        if lost:
            console.print(
                f"This replaces an evaluation of {run} that had {len(lost)} more set{'s' * (len(lost) > 1)} "
                f"({', '.join(sorted(lost)[:4])}{', ...' * (len(lost) > 4)}): for these, evaluate it again without "
                "the option that left them out, or keep this one elsewhere with --output.",
                highlight=False,
                markup=False,
            )
    kept = [str(output or folder) for run in runs if (folder := results_folder(run)) or output]
    if kept:
        console.print(f"The results are in {', '.join(kept)}", highlight=False, soft_wrap=True, markup=False)


def _kept_sets(folder: Path | None) -> dict[tuple[str | None, str], set[str]]:
    """The sets of the latest evaluation in a folder, under its suite and task."""
    from rosewood.evaluation.files import load_evaluation

    try:
        found = None if folder is None else load_evaluation(folder)
    except RunError:  # there is none, or a damaged one
        found = None
    return {} if found is None else {(found.suite, found.task): {each.name for each in found.sets}}


def results_folder(run: str) -> Path | None:
    """Where the results of a run or a checkpoint go: into its own folder, if it has one that can be written to."""
    folder = Path(run)
    return folder if folder.is_dir() and os.access(folder, os.W_OK) else None


def common_length(runs: Sequence[str], trusted: Collection[str], console: Console) -> int | None:
    """The text length at which models compare that read texts of different lengths; None if theirs is the same."""
    from rosewood.models.open import open_run, run_info

    if len(runs) < 2:
        return None
    infos = {run: run_info(run) for run in runs}  # a run says its length without its model
    lengths = {
        open_run(run, trusted, words=True).max_length if info is None else info.max_length
        for run, info in infos.items()
    }
    if len(lengths) == 1:
        return None
    shortest = min(lengths)
    console.print(
        f"These models read texts of different lengths. So that they compare, all texts are cut after {shortest} "
        "tokens; --max-length sets another length.",
        highlight=False,
    )
    return shortest


def evaluate_one(
    run: str,
    task: str | None,
    data_dir: Path | None,
    size: int | None,
    batch_size: int,
    typo_rate: float | None,
    seed: int,
    trusted: Collection[str] = (),
    suite: str | None = None,
    own: TestFile | None = None,
    max_length: int | None = None,
    labels: Sequence[str] | None = None,
    output: Path | None = None,
    **options: Any,
) -> Evaluation:
    """Evaluate one run or checkpoint; a run knows its task, its data folder and its text length."""
    from rosewood.evaluation.evaluate import evaluate as run_suite
    from rosewood.models.modes import accelerated
    from rosewood.models.open import open_run
    from rosewood.models.scoring import name_outputs

    opened = open_run(run, trusted)
    info = opened.info
    if labels is not None:
        name_outputs(opened.model, labels)
    if own is not None:
        own = with_run_columns(own, opened.folder)
    return run_suite(
        accelerated(opened.model),
        opened.tokenizer,
        own.file if own else suite or task_of(run, task, opened.folder),
        data_dir=str(data_dir) if data_dir else opened.data_dir,
        size=size,
        batch_size=batch_size,
        max_length=max_length or (info.max_length if info and suite is None else None),
        typo_rate=typo_rate,
        seed=seed,
        task=task or (info.task if info else None),
        text_columns=own.text_columns if own else None,
        label_column=own.label_column if own else None,
        output=output or results_folder(run),
        **options,
    )


def _remarks(evaluations: Mapping[str, Evaluation]) -> Iterator[str]:
    """What a reader of the tables must know."""
    from rich.markup import escape

    from rosewood.results.evaluation import described, guessed_sets

    for run, evaluation in evaluations.items():
        if guessed := guessed_sets(evaluation):
            yield (
                f"{escape(run)} is [yellow]at guessing[/]: {escape(described(guessed))}. What a model keeps under "
                "noise or attack says something only once it has learnt the task."
            )
        named = {label: name for label, name in evaluation.labels.items() if label.casefold() != name.casefold()}
        if named:
            taken = ", ".join(f"{name} as {label}" for label, name in named.items())
            yield f"[yellow]labels[/] of {escape(run)}: {escape(taken)}"
        yield from (f"[yellow]note[/] {each.name}: {escape(each.note)}" for each in evaluation.sets if each.note)
        yield from (f"[yellow]missing[/] {each.name}: {escape(each.reason)}" for each in evaluation.missing)


def own_file(
    file: Path | None, text_columns: list[str], label_column: str | None, task: str | None, suite: str | None = None
) -> TestFile | None:
    """What --test-file and its columns name, checked as far as it can be without a model."""
    from rosewood.data.files import label_column_of, read_file, text_columns_of
    from rosewood.results import TestFile

    if file is None:
        if text_columns or label_column is not None:
            raise RunError("--text-column and --label-column name columns of a file of your own: add --test-file")
        return None
    if task is not None or suite is not None:
        raise RunError("--test-file is the data to measure on, as are --task and --suite: give one of them")
    table = read_file(file)
    if text_columns:
        text_columns_of(table, "", text_columns)
    if label_column is not None:
        label_column_of(table, label_column)
    return TestFile(file=str(file), text_columns=text_columns, label_column=label_column)


def with_run_columns(own: TestFile, directory: Path | None) -> TestFile:
    """The file with the columns that a run was trained on, where no others are named and it has them."""
    from rosewood.data.files import read_file
    from rosewood.data.tasks import load_task

    if directory is None or not (directory / "task.yaml").exists():
        return own
    task = load_task(directory / "task.yaml")
    if own.text_columns and len(own.text_columns) != len(task.text):
        raise RunError(
            f"{directory} was trained on {len(task.text)} text{'s' if len(task.text) > 1 else ''} per example "
            f"({', '.join(task.text)}); --text-column names {', '.join(own.text_columns)}"
        )
    columns = read_file(Path(own.file)).columns
    sources = task.split("train").sources if "train" in task.splits else []
    trained = next((raw for source in sources for raw, new in source.columns.items() if new == "label"), "label")
    texts = own.text_columns or [name for name in task.text if set(task.text) <= set(columns)]
    label = own.label_column or (trained if trained in columns else None)
    return own.model_copy(update={"text_columns": texts, "label_column": label})


def check_run(
    run: str, task: str | None, suite: str | None = None, own: TestFile | None = None, takes_file: bool = True
) -> None:
    """Whether a run can be evaluated, said before any work; `takes_file`: the command has the option --test-file."""
    add = "add --task or --test-file" if takes_file else "add --task"
    check_models([run], trained=True)
    directory = Path(run)
    if suite is None and task is None and own is None and not directory.exists():
        raise RunError(f"there is no folder {run}. If it is a checkpoint of the Hub, {add}")
    if suite is not None:
        from rosewood.data.suites import load_suite

        load_suite(suite)
    if task is not None:
        from rosewood.data.tasks import load_task

        load_task(task)
    from rosewood.models.open import run_info  # slow

    if run_info(run) is not None:
        return
    if directory.is_dir() and not any((directory / name).exists() for name in ("config.json", "adapter_config.json")):
        raise RunError(f"{run} is neither a run (no run.json) nor a checkpoint (no config.json)")
    if suite is None and own is None and task is None:
        raise RunError(f"{run} is a checkpoint, not a run, and does not say its task: {add}")


def task_of(run: str, name: str | None, directory: Path | None) -> Task:
    """The task that was asked for, or the one that the run knows."""
    from rosewood.data.tasks import load_task

    if name is not None:
        return load_task(name)
    if directory is None:
        raise RunError(f"{run} is a checkpoint, not a run, and does not say its task: add --task")
    return load_task(directory / "task.yaml")
