"""rosewood wrap and certify: a defence around a trained model, and what it guarantees."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer
from rich.console import Console
from rich.table import Table

from rosewood.cli import app, check_defences, check_files, check_models, examples, resumable
from rosewood.cli.evaluate import check_run, task_of
from rosewood.cli.options import BATCH_SIZE, LABEL_COLUMN, LEXICON, RUN_DATA_DIR, TEXT_COLUMN, TRAIN_FILE
from rosewood.config.settings import DATA, LARGEST_SEED
from rosewood.errors import RunError

if TYPE_CHECKING:
    from rosewood.models.defended import Defended


@app.command(
    epilog=examples(
        "rosewood wrap runs/vanilla --with smoothed:mask --copies 50 --output runs/vanilla-smoothed",
        "rosewood wrap runs/vanilla --with smoothed:substitute --lexicon counter-fitted --output runs/vanilla-safer",
        "rosewood wrap runs/vanilla --with guarded:density --output runs/vanilla-guarded",
        "rosewood wrap ./my-checkpoint --with corrected --train-file train.csv --output my-wrapped",
        "rosewood wrap runs/encoded --with corrected+encoded --output runs/encoded-wrapped",
        "rosewood wrap ./my-checkpoint --with smoothed:delete --set share=0.5 --output my-wrapped",
    )
)
def wrap(
    run: str = typer.Argument(help="A run directory, checkpoint folder or Hub name."),
    defence: str = typer.Option(
        ...,
        "--with",
        help="One of `rosewood list defences`, such as smoothed:mask, or front ends before one: corrected+encoded.",
    ),
    output: Path = typer.Option(..., "--output", "-o", help="The new run directory; of a checkpoint, its folder."),
    copies: int | None = typer.Option(
        None, min=1, help="Copies of a text that smoothed reads: what an answer costs.", show_default="the defence's"
    ),
    assignments: list[str] = typer.Option([], "--set", help="Change one setting of the defence: share=0.5."),
    lexicon: str | None = LEXICON,
    task: str | None = typer.Option(
        None,
        help="The task whose training texts the defence learns from.",
        show_default="the run's",
        rich_help_panel=DATA,
    ),
    train_file: Path | None = TRAIN_FILE,
    text_column: list[str] = TEXT_COLUMN,
    label_column: str = LABEL_COLUMN,
    train_examples: int = typer.Option(
        5000,
        min=1,
        help="Training texts that the defence learns from, at most; encoded reads all.",
        rich_help_panel=DATA,
    ),
    data_dir: Path | None = RUN_DATA_DIR,
    trust_remote_code: bool = typer.Option(
        False, "--trust-remote-code", help="Run the code that this checkpoint brings along."
    ),
) -> None:
    """Put a defence around a trained model. The result is a run like any other, or a checkpoint if it was one."""
    if task is not None and train_file is not None:
        raise RunError("--task and --train-file both name training data: give one of them")
    check_models([run], trained=True)
    check_defences([defence])
    check_files(train_file, [], text_column, label_column)
    from rosewood.config.strict_yaml import parse_overrides
    from rosewood.data.loading import task_from_files
    from rosewood.defences.runner.wrap import choose_defence, title_of, wrap_run

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
    broken = {name: (field, changed) for name, (field, changed) in broken.items() if changed}
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
    for name, (field, changed) in broken.items():
        clean = [tuple(each.texts.values()) for each in changed]
        attacked = [tuple((each.texts | {field: each.adversarial or ""}).values()) for each in changed]
        found = detection(wrapped, clean, attacked)
        shares = (f"{100 * share:.1f} %" for share in (found.caught, found.false_alarms))
        table.add_row(name, str(len(changed)), f"{found.auroc:.3f}", *shares)
    console.print(table)
    console.print(
        f"An attack that knows the guard: rosewood attack {output} --attack pwws. Its success rate is the rate at "
        "which the guard is bypassed.",
        markup=False,
    )


@app.command(
    epilog=examples(
        "rosewood certify runs/ranmask --with mask --examples 500",
        "rosewood certify runs/vanilla --with delete --share 0.5 --copies 2000 --confidence 0.99",
        "rosewood certify ./my-checkpoint --task sst2 --with substitute --lexicon counter-fitted",
    )
)
def certify(
    runs: list[str] = typer.Argument(help="Run directories, checkpoint folders or Hub names."),
    by: Literal["mask", "delete", "substitute"] = typer.Option(..., "--with", help="How copies of a text are changed."),
    share: float | None = typer.Option(
        None,
        min=0.001,
        max=1.0,
        help="Share of the words that are masked, deleted or drawn again.",
        show_default="0.3 masked or deleted, 1 drawn again",
    ),
    copies: int = typer.Option(1000, min=1, help="Copies of each text that a bound is computed from."),
    selection_copies: int = typer.Option(100, min=1, help="Other copies, which choose the label."),
    confidence: float = typer.Option(0.999, min=0.5, max=0.999999, help="Confidence of each text's certificate."),
    examples: int = typer.Option(500, min=1, help="Certify a seeded sample of at most this size."),
    lexicon: str | None = LEXICON,
    task: str | None = typer.Option(None, help="A task or its YAML file.", show_default="the run's"),
    split: str | None = typer.Option(None, help="The split to certify.", show_default="test, or else validation"),
    data_dir: Path | None = RUN_DATA_DIR,
    max_length: int | None = typer.Option(None, min=4, help="Tokens per copy.", show_default="the run's"),
    batch_size: int = BATCH_SIZE,
    seed: int = typer.Option(0, min=0, max=LARGEST_SEED, help="Seed of the sample and of the copies."),
    output: Path | None = typer.Option(
        None,
        "--output",
        "-o",
        help="Where the results go.",
        show_default="RUN/certificates, or certificates/CHECKPOINT",
    ),
) -> None:
    """Certify runs as smoothed models: certified accuracy by the number of words changed, inserted or deleted.

    Run the same command again to continue after a stop; what is finished is read from its folder.
    """
    check_models(runs, trained=True)
    from rosewood.comparison.attack_tables import certificate_grid
    from rosewood.data.loading import load_split
    from rosewood.defences.runner.certify import certify as certify_texts
    from rosewood.models.modes import accelerated
    from rosewood.models.open import open_run
    from rosewood.models.scoring import label_columns
    from rosewood.results.grid import Folded
    from rosewood.words.lexicon import Lexicon

    for run in runs:  # all of them before the first, which may take hours
        check_run(run, task, takes_file=False)
    console = Console(highlight=False, soft_wrap=True)
    found = {}
    for run in runs:
        opened = open_run(run)
        folder = data_dir or (Path(opened.data_dir) if opened.data_dir else None)
        known = task_of(run, task, opened.folder)
        chosen = split or ("test" if "test" in known.splits else "validation")
        data = load_split(known, chosen, folder, examples, seed)
        columns = label_columns(opened.model.config, known.labels)
        own = (
            Path("certificates") / Path(run).resolve().name if opened.folder is None else opened.folder / "certificates"
        )
        place = (output or own) / f"{by}-{chosen}-{share or 'usual'}-{copies}-{len(data)}-{seed}"
        with resumable(console):
            found[run] = certify_texts(
                accelerated(opened.model),
                opened.tokenizer,
                list(zip(*(data[field][:] for field in known.text), strict=True)),
                [columns[label] for label in data["label"][:]],
                by,
                share=share,
                copies=copies,
                selection_copies=selection_copies,
                confidence=confidence,
                lexicon=Lexicon.named(lexicon, folder) if by == "substitute" else None,
                seed=seed,
                max_length=max_length or opened.max_length,
                batch_size=batch_size,
                output=place,
                task=known.name,
                split=chosen,
            )
        console.print(f"The certificates of {len(data)} texts are in {place}", markup=False)
    Console().print(Folded(certificate_grid(found)))
