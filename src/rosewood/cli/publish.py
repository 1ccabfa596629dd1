"""rosewood push: a trained model for other people."""

from __future__ import annotations

from pathlib import Path

import typer
from rich.console import Console

from rosewood.cli import app, examples


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
