"""rosewood card: the model card of a run."""

from __future__ import annotations

from pathlib import Path

import typer
from rich.console import Console

from rosewood.cli import app
from rosewood.errors import RunError

EXAMPLES = """
[bold]Examples[/]

  rosewood card runs/rose

  rosewood card runs/rose --suite sentiment --output card.md
"""


@app.command(epilog=EXAMPLES)
def card(
    run: Path = typer.Argument(help="A run that was evaluated."),
    output: Path | None = typer.Option(
        None, "--output", "-o", help="The file to write.", show_default="RUN/model/README.md"
    ),
    suite: str | None = typer.Option(None, help="The suite to show.", show_default="that of the latest evaluation"),
    overwrite: bool = typer.Option(False, "--overwrite", help="Replace the file if there is one."),
) -> None:
    """Write the card of a model for the Hugging Face Hub, with the figures of its evaluation and attacks.

    The figures are also in the card's front matter, where the Hub reads them. Nothing is uploaded.
    """
    path = run / "model" / "README.md" if output is None else output
    if path.exists() and not overwrite:
        raise RunError(f"{path} exists, and may have been written by hand: add --overwrite, or choose another --output")
    console = Console()
    with console.status("reading the run"):
        from rosewood.report.card import write_card

        write_card(run, path, suite)
    console.print(f"The card is in {path}", highlight=False, soft_wrap=True, markup=False)
