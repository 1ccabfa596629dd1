"""rosewood train: fine-tune a model with a recipe."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

from rosewood.cli import LARGEST_SEED, app
from rosewood.errors import RunError

if TYPE_CHECKING:
    from rosewood.data.tasks import Task
    from rosewood.results import Lora

EXAMPLES = """
[bold]Examples[/]

  rosewood train --recipe rose-ensemble --task reviews --output runs/rose

  rosewood train --recipe rose-first --task sst2 --set selection.keep_quantile=0.7

  rosewood train --recipe rose-second --train-file mine.csv --text-column text --label-column topic

  rosewood train --recipe rose-second --train-file mine.csv --class-weights balanced

  rosewood train --recipe rose-ensemble --task reviews --lora-rank 8

  rosewood train --recipe rift --task sst2 --select-by pwws --early-stopping 3

  rosewood train --recipe rose-ensemble --watch masks --watch drift --watch inconsistency

  rosewood train --output runs/rose --resume
"""
DATA = "Data"
TRAINING = "Training"
LORA = "LoRA"


class Watched(StrEnum):
    """What can be watched while a model trains."""

    masks = "masks"
    drift = "drift"
    inconsistency = "inconsistency"


@app.command(epilog=EXAMPLES)
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
    data_dir: Path | None = typer.Option(
        None, envvar="ROSEWOOD_DATA", help="Folder with the tasks' files.", rich_help_panel=DATA
    ),
    train_file: Path | None = typer.Option(
        None, help="Your own training data: CSV, TSV, JSON Lines or Parquet.", rich_help_panel=DATA
    ),
    eval_file: Path | None = typer.Option(
        None, help="Your own validation data.", show_default="a tenth of --train-file", rich_help_panel=DATA
    ),
    test_file: Path | None = typer.Option(None, help="Your own test data.", rich_help_panel=DATA),
    text_column: list[str] = typer.Option(
        [], help="Column with the text; twice for pairs.", show_default="text", rich_help_panel=DATA
    ),
    label_column: str = typer.Option("label", help="Column with the label.", rich_help_panel=DATA),
    train_size: int | None = typer.Option(
        None, min=2, help="Train on a seeded sample of this size.", rich_help_panel=DATA
    ),
    model: str | None = typer.Option(
        None,
        help="A folder, a Hub name, or one of `rosewood list models`.",
        show_default="minilm",
        rich_help_panel=TRAINING,
    ),
    labels: str | None = typer.Option(
        None,
        help="Names of a fine-tuned model's outputs in their order, with commas.",
        show_default="those in its config.json",
        rich_help_panel=TRAINING,
    ),
    new_head: bool = typer.Option(
        False,
        "--new-head",
        help="Give a fine-tuned model a new classification head instead of keeping its own.",
        rich_help_panel=TRAINING,
    ),
    pretrained: str | None = typer.Option(
        None,
        metavar="MODEL",
        help="What anchors (RIFT, Mixout, L2-SP) and `rosewood average` take as the pre-trained weights.",
        show_default="the base model that a fine-tuned --model names, if it is here; or --model itself",
        rich_help_panel=TRAINING,
    ),
    trust_remote_code: str | None = typer.Option(
        None, metavar="MODEL", help="Run the code that this model brings along.", rich_help_panel=TRAINING
    ),
    epochs: float | None = typer.Option(None, min=0.01, show_default="3", rich_help_panel=TRAINING),
    learning_rate: float | None = typer.Option(
        None, min=0.0, show_default="the recipe's, or by model size (LoRA: 1e-3)", rich_help_panel=TRAINING
    ),
    batch_size: int | None = typer.Option(
        None, min=1, help="Examples per device and step.", show_default="32", rich_help_panel=TRAINING
    ),
    accumulation_steps: int | None = typer.Option(
        None, min=1, help="Batches per optimiser step.", show_default="1", rich_help_panel=TRAINING
    ),
    max_length: int = typer.Option(128, min=4, help="Tokens per text.", rich_help_panel=TRAINING),
    class_weights: str | None = typer.Option(
        None,
        help="Let rows of rare classes count more: balanced, or a number for each label (spam=5,ham=1).",
        show_default="all rows alike",
        rich_help_panel=TRAINING,
    ),
    seed: int = typer.Option(0, min=0, max=LARGEST_SEED, rich_help_panel=TRAINING),
    early_stopping: int | None = typer.Option(
        None,
        min=1,
        help="Stop after this many epochs without better validation accuracy (with --select-by: under attack), keep "
        "the best.",
        rich_help_panel=TRAINING,
    ),
    select_by: str | None = typer.Option(
        None,
        metavar="ATTACK",
        help="Keep the epoch that is most accurate under this attack on validation data: pwws, typos.",
        show_default="the last epoch, or --early-stopping's",
        rich_help_panel=TRAINING,
    ),
    select_examples: int = typer.Option(
        100, min=1, help="Validation examples that --select-by attacks.", rich_help_panel=TRAINING
    ),
    max_skipped_steps: int = typer.Option(
        10,
        min=0,
        help="Steps in a row that may be skipped because of NaN or infinity before the run ends.",
        rich_help_panel=TRAINING,
    ),
    watch: list[Watched] = typer.Option(
        [], help="Record, without changing training: rosewood dynamics shows it (repeatable).", rich_help_panel=TRAINING
    ),
    watch_every: int | None = typer.Option(
        None, min=1, help="Record every k-th step.", show_default="10", rich_help_panel=TRAINING
    ),
    lora_rank: int | None = typer.Option(
        None, min=1, help="Train a LoRA adapter of this rank instead of all weights.", rich_help_panel=LORA
    ),
    lora_alpha: int | None = typer.Option(
        None, min=1, help="The adapter counts alpha / rank.", show_default="twice the rank", rich_help_panel=LORA
    ),
    lora_dropout: float | None = typer.Option(
        None, min=0.0, max=0.99, help="Dropout before the adapter.", show_default="0", rich_help_panel=LORA
    ),
    lora_targets: list[str] = typer.Option(
        [],
        help="Layers that get an adapter, such as query (repeatable).",
        show_default="all-linear",
        rich_help_panel=LORA,
    ),
    resume: bool = typer.Option(False, "--resume", help="Continue the interrupted run in --output."),
    overwrite: bool = typer.Option(False, "--overwrite", help="Replace the run in --output."),
) -> None:
    """Fine-tune a model with a recipe and write a run directory.

    Any other training argument of transformers is a setting too: --set training.bf16=true.
    """
    from rosewood.config.overrides import parse_overrides
    from rosewood.recipe import load_recipe
    from rosewood.tensors.distributed import is_first
    from rosewood.training.class_weights import parse_class_weights
    from rosewood.training.run import Interrupted, Plan, resume_run, settled, start_run

    if resume:
        sources = {name: context.get_parameter_source(name) for name in context.params}
        given = [name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"]
        others = [
            f"--{name.replace('_', '-')}" for name in given if name not in ("resume", "output", "trust_remote_code")
        ]
        if output is None or others:
            raise RunError(
                "--resume takes its settings from the run: rosewood train --output RUN --resume"
                + (f" (leave out {', '.join(others)})" if others else "")
            )
    if watch_every is not None and not watch:
        raise RunError("--watch-every says how often, not what: add --watch drift, masks or inconsistency")
    chosen = {
        "num_train_epochs": epochs,
        "learning_rate": learning_rate,
        "per_device_train_batch_size": batch_size,
        "gradient_accumulation_steps": accumulation_steps,
    }
    arguments: dict[str, Any] = {name: value for name, value in chosen.items() if value is not None}
    console = Console(quiet=not is_first())
    try:
        if resume and output is not None:
            info = resume_run(output, trust_remote_code=trust_remote_code)
        else:
            files = {"train_file": train_file, "eval_file": eval_file, "test_file": test_file}
            plan = Plan(
                recipe=load_recipe(recipe or "vanilla", parse_overrides(assignments)),
                task=_task(task, files, text_column, label_column),
                model=model or "minilm",
                labels=named(labels),
                new_head=new_head,
                pretrained=pretrained,
                data_dir=None if data_dir is None else str(data_dir),
                train_size=train_size,
                max_length=max_length,
                seed=seed,
                early_stopping=early_stopping,
                select_by=select_by,
                select_examples=select_examples,
                max_skipped_steps=max_skipped_steps,
                watch=list(dict.fromkeys(each.value for each in watch)),
                watch_every=watch_every or 10,
                class_weights=None if class_weights is None else parse_class_weights(class_weights),
                lora=_lora(lora_rank, lora_alpha, lora_dropout, lora_targets),
                arguments=arguments,
                trust_remote_code=trust_remote_code,
            )
            output = output or Path("runs") / file_name(f"{plan.recipe.name}-{plan.task.name}-seed{seed}")
            plan, remark = settled(plan)
            if remark:
                console.print(remark, highlight=False, markup=False)
            info = start_run(plan, output, overwrite)
    except Interrupted:
        console.print(f"Interrupted; nothing is lost. Continue with: rosewood train --output {output} --resume")
        raise typer.Exit(130) from None
    if is_first():
        report(output, info.seconds or 0.0, console)


def named(labels: str | None) -> list[str] | None:
    """The names that --labels gives the outputs of a model."""
    return None if labels is None else [name.strip() for name in labels.split(",")]


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


def _lora(rank: int | None, alpha: int | None, dropout: float | None, targets: list[str]) -> Lora | None:
    from rosewood.results import Lora

    if rank is None:
        if alpha is not None or dropout is not None or targets:
            raise RunError("the options of LoRA need its rank: add --lora-rank 8")
        return None
    return Lora(rank=rank, alpha=alpha or 2 * rank, dropout=dropout or 0.0, targets=targets or ["all-linear"])


def report(output: Path, seconds: float, console: Console) -> None:
    """Say how a run ended and what to do next."""
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
        console.print(
            "[yellow]at guessing:[/] on validation data the model is not more accurate than the most frequent label. "
            "Change the learning rate or train for longer before you compare it.",
            highlight=False,
        )
    console.print(f"Next: rosewood evaluate {output}", highlight=False)
