"""rosewood certify: how many words may change before the answer of a smoothed model can."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import typer
from rich.console import Console

from rosewood.cli import app, resumable
from rosewood.cli.evaluate import check_run, task_of
from rosewood.config.settings import LARGEST_SEED

EXAMPLES = """
[bold]Examples[/]

  rosewood certify runs/ranmask --with mask --examples 500

  rosewood certify runs/vanilla --with delete --share 0.5 --copies 2000 --confidence 0.99

  rosewood certify ./my-checkpoint --task sst2 --with substitute --lexicon counter-fitted
"""


@app.command(epilog=EXAMPLES)
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
    lexicon: str | None = typer.Option(
        None,
        help="The synonyms: counter-fitted, wordnet, roget, or a JSON file of word -> substitutes.",
        show_default="counter-fitted if --data-dir has it, else roget",
    ),
    task: str | None = typer.Option(None, help="A task or its YAML file.", show_default="the run's"),
    split: str | None = typer.Option(None, help="The split to certify.", show_default="test, or else validation"),
    data_dir: Path | None = typer.Option(
        None, envvar="ROSEWOOD_DATA", help="Folder with the tasks' files.", show_default="the run's"
    ),
    max_length: int | None = typer.Option(None, min=4, help="Tokens per copy.", show_default="the run's"),
    batch_size: int = typer.Option(64, min=1),
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

    What was stopped goes on when the same command is given again, and what is finished is read from its folder.
    """
    from transformers.utils.logging import disable_progress_bar

    from rosewood.comparison.attacks import certificate_grid
    from rosewood.data.loading import load_split
    from rosewood.defences.smoothing.certify import certify as certify_texts
    from rosewood.models.modes import accelerated
    from rosewood.models.open import load_classifier
    from rosewood.models.scoring import label_columns
    from rosewood.results import RunInfo
    from rosewood.results.grid import Folded
    from rosewood.words.lexicon import Lexicon

    disable_progress_bar()  # transformers' bar for loading says nothing at this size
    for run in runs:  # all of them before the first, which may take hours
        check_run(run, task)
    console = Console(highlight=False, soft_wrap=True)
    found = {}
    for run in runs:
        directory = Path(run)
        info = RunInfo.load(directory / "run.json") if (directory / "run.json").exists() else None
        model, tokenizer = load_classifier(str(directory / "model") if info else run)
        folder = data_dir or (Path(info.data_dir) if info and info.data_dir else None)
        known = task_of(run, task, directory if info else None)
        chosen = split or ("test" if "test" in known.splits else "validation")
        data = load_split(known, chosen, folder, examples, seed)
        columns = label_columns(model.config, known.labels)
        kept = output or (directory / "certificates" if info else Path("certificates") / directory.resolve().name)
        place = kept / f"{by}-{chosen}-{share or 'usual'}-{copies}-{len(data)}-{seed}"
        with resumable(console):
            found[run] = certify_texts(
                accelerated(model),
                tokenizer,
                list(zip(*(data[field][:] for field in known.text), strict=True)),
                [columns[label] for label in data["label"][:]],
                by,
                share=share,
                copies=copies,
                selection_copies=selection_copies,
                confidence=confidence,
                lexicon=Lexicon.named(lexicon, folder) if by == "substitute" else None,
                seed=seed,
                max_length=max_length or (info.max_length if info else None),
                batch_size=batch_size,
                output=place,
                task=known.name,
                split=chosen,
            )
        console.print(f"The certificates of {len(data)} texts are in {place}", markup=False)
    Console().print(Folded(certificate_grid(found)))
