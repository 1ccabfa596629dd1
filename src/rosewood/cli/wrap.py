"""rosewood wrap: a run with a defence around its model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.table import Table

from rosewood.cli import app
from rosewood.errors import RunError

if TYPE_CHECKING:
    from rosewood.models.defended import Defended

EXAMPLES = """
[bold]Examples[/]

  rosewood wrap runs/vanilla --with smoothed:mask --copies 50 --output runs/vanilla-smoothed

  rosewood wrap runs/vanilla --with smoothed:substitute --lexicon counter-fitted --output runs/vanilla-safer

  rosewood wrap runs/vanilla --with guarded:density --output runs/vanilla-guarded

  rosewood wrap ./my-checkpoint --with corrected --train-file train.csv --output my-wrapped

  rosewood wrap ./my-checkpoint --with smoothed:delete --set share=0.5 --output my-wrapped
"""


@app.command(epilog=EXAMPLES)
def wrap(
    run: str = typer.Argument(help="A run directory, checkpoint folder or Hub name."),
    defence: str = typer.Option(..., "--with", help="One of `rosewood list defences`, such as smoothed:mask."),
    output: Path = typer.Option(..., "--output", "-o", help="The new run directory; of a checkpoint, its folder."),
    copies: int | None = typer.Option(
        None, min=1, help="Copies of a text that smoothed reads: what an answer costs.", show_default="the defence's"
    ),
    assignments: list[str] = typer.Option([], "--set", help="Change one setting of the defence: share=0.5."),
    lexicon: str | None = typer.Option(
        None,
        help="Words that replace each other: counter-fitted, wordnet, roget, or a JSON file of word -> substitutes.",
        show_default="counter-fitted if --data-dir has it, else roget",
    ),
    task: str | None = typer.Option(
        None, help="The task whose training texts the defence learns from.", show_default="the run's"
    ),
    train_file: Path | None = typer.Option(
        None, help="Your own training data, in place of a task: CSV, TSV, JSON Lines or Parquet."
    ),
    text_column: list[str] = typer.Option([], help="Column with the text; twice for pairs.", show_default="text"),
    label_column: str = typer.Option("label", help="Column with the label."),
    train_examples: int = typer.Option(5000, min=1, help="Training texts that the defence learns from, at most."),
    data_dir: Path | None = typer.Option(
        None, envvar="ROSEWOOD_DATA", help="Folder with the tasks' files.", show_default="the run's"
    ),
    trust_remote_code: bool = typer.Option(
        False, "--trust-remote-code", help="Run the code that this checkpoint brings along."
    ),
) -> None:
    """Put a defence around a trained model. The result is a run like any other, or a checkpoint if it was one."""
    from rosewood.config.strict_yaml import parse_overrides
    from rosewood.data.loading import task_from_files
    from rosewood.defences.wrapping.wrap import choose_defence, title_of, wrap_run

    if task is not None and train_file is not None:
        raise RunError("--task and --train-file both name training data: give one of them")
    own = train_file and task_from_files(train_file, text_columns=text_column or ["text"], label_column=label_column)
    settings = parse_overrides(assignments) | ({} if copies is None else {"copies": copies})
    wrapped = wrap_run(
        run,
        output,
        choose_defence(defence, settings),
        task=own or task,
        data_dir=data_dir,
        lexicon=lexicon,
        train_examples=train_examples,
        trust_remote_code=trust_remote_code,
    )
    console = Console(highlight=False, soft_wrap=True)
    cost = wrapped.defence.forwards()
    console.print(
        f"The model with {title_of(wrapped.defence)} around it is in {output}. An answer costs {cost:g} "
        f"forward pass{'' if cost == 1 else 'es'}.",
        markup=False,
    )
    if wrapped.defence.refuses():
        _print_detection(console, wrapped, run, output)
    more = "" if (output / "run.json").exists() else f" --task {task or 'TASK'}" if own is None else " --test-file FILE"
    console.print(f"Next: rosewood evaluate {output}{more}", markup=False)


def _print_detection(console: Console, wrapped: Defended, run: str, output: Path) -> None:
    """How well a guard tells the texts that broke the model without it from the originals."""
    from rosewood.comparison.runs import kept_attacks
    from rosewood.defences.guarded import detection

    broken = {
        kept.folder.name: (kept.report.field, [each for each in kept.examples() if each.adversarial is not None])
        for kept in kept_attacks(Path(run))
    }
    broken = {name: (field, examples) for name, (field, examples) in broken.items() if examples}
    if not broken:
        console.print(
            f"How well the guard tells attacked texts is not known yet: attack the model without it, "
            f"rosewood attack {run} --attack pwws, and wrap it again.",
            markup=False,
        )
        return
    table = Table(title="The guard on texts that broke the model without it")
    for column in ("attack", "texts", "AUROC", "caught", "false alarms"):
        table.add_column(column, justify="left" if column == "attack" else "right")
    for name, (field, examples) in broken.items():
        clean = [tuple(each.texts.values()) for each in examples]
        attacked = [tuple((each.texts | {field: each.adversarial or ""}).values()) for each in examples]
        found = detection(wrapped, clean, attacked)
        shares = (f"{100 * share:.1f} %" for share in (found.caught, found.false_alarms))
        table.add_row(name, str(len(examples)), f"{found.auroc:.3f}", *shares)
    console.print(table)
    console.print(
        f"An attack that knows the guard: rosewood attack {output} --attack pwws. Its success rate is the rate at "
        "which the guard is bypassed.",
        markup=False,
    )
