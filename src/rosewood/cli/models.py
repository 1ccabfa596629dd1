"""rosewood average, push and export: what to do with trained models."""

from __future__ import annotations

from pathlib import Path

import typer
from rich.console import Console

from rosewood.cli import app, examples
from rosewood.errors import RunError


@app.command(
    epilog=examples(
        "rosewood average runs/rose --with-pretrained 0.5 --output runs/rose-wise",
        "rosewood average runs/seed0 runs/seed1 runs/seed2 --output runs/soup",
        "rosewood average ./my-checkpoint --pretrained bert-base-uncased --with-pretrained 0.5 --output my-wise",
    )
)
def average(
    runs: list[Path] = typer.Argument(help="Finished runs, or checkpoint folders, of the same model and labels."),
    output: Path = typer.Option(..., "--output", "-o", help="The new run directory; of a checkpoint, its folder."),
    with_pretrained: float = typer.Option(
        0.0, min=0.0, max=1.0, help="Share of the pre-trained weights in the result (WiSE-FT); the head has none."
    ),
    pretrained: str | None = typer.Option(
        None,
        metavar="MODEL",
        help="The model that a checkpoint was fine-tuned from: a folder, a Hub name, or one of `rosewood list models`.",
        show_default="the run's",
    ),
    weight: list[float] = typer.Option(
        [], min=0.0, help="Weight of a run, once for each in their order.", show_default="equal weights"
    ),
) -> None:
    """Average the weights of runs with each other (a soup), with their pre-trained model (WiSE-FT), or both.

    Costs no training. The result is a run like any other, or a checkpoint if the first was one: evaluate it next.
    """
    from rosewood.models import averaging

    info = averaging.average(runs, output, weight or None, with_pretrained, pretrained)
    console = Console()
    console.print(f"The averaged model is in {output}", highlight=False)
    task = " --task TASK" if info is None else ""  # which a checkpoint does not say
    console.print(f"Next: rosewood evaluate {output}{task}", highlight=False)


@app.command(
    epilog=examples(
        "rosewood card runs/rose && rosewood push runs/rose my-name/reviews-rose",
        "rosewood push runs/rose my-name/reviews-rose --private",
    )
)
def push(
    run: Path = typer.Argument(help="A finished run with a model card (rosewood card)."),
    name: str = typer.Argument(help="The repository on the Hub, such as my-name/reviews-rose; it is made if need be."),
    private: bool = typer.Option(False, "--private", help="Let only you see a repository that is made."),
    message: str = typer.Option("Upload a model trained with Rosewood", help="Of the commit."),
) -> None:
    """Upload the model of a run to the Hugging Face Hub, with its tokenizer, card and evaluation results.

    Needs a token: hf auth login. Checkpoints, histories and data stay here.
    """
    console = Console()
    with console.status("uploading"):
        from rosewood.report.hub import push_run

        address = push_run(run, name, private, message)
    console.print(f"The model is at {address}", highlight=False, soft_wrap=True, markup=False)


@app.command(
    epilog=examples(
        "rosewood export runs/rose --output exported",
        "rosewood attack exported --attack typos --test-file test.csv",
    )
)
def export(
    run: str = typer.Argument(help="A run, a checkpoint folder, or a name on the Hub."),
    output: Path = typer.Option(..., "--output", "-o", help="A new folder for model.onnx, config.json and tokenizer."),
) -> None:
    """Write a classifier as an ONNX file, and check that it gives the same scores.

    The folder can be evaluated and attacked like a checkpoint, and has the layout that Optimum reads. Needs the extra
    `onnx`.
    """
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise RunError(f"{output} exists: choose a new folder")
    console = Console()
    with console.status("exporting"):
        from rosewood.models.onnx import FILE, export_onnx
        from rosewood.models.open import open_run

        opened = open_run(run)
        found = export_onnx(opened.model, opened.tokenizer, output)
    size = (output / FILE).stat().st_size / 1e6
    console.print(
        f"{output / FILE} ({size:.1f} MB) gives the same scores; the largest difference of a logit is {found:.0e}",
        highlight=False,
        soft_wrap=True,
    )
    console.print(f"Next: rosewood attack {output} --attack typos --test-file FILE", highlight=False, soft_wrap=True)
