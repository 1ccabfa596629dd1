"""rosewood table: evaluated runs in one table, for the terminal or a paper."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

import typer
from rich.console import Console

from rosewood.cli import app

EXAMPLES = """
[bold]Examples[/]

  rosewood table runs/vanilla-* runs/rose-* --baseline vanilla

  rosewood table runs/* --baseline vanilla --format latex > table.tex
"""


class Format(StrEnum):
    """How the table is written."""

    terminal = "terminal"
    markdown = "markdown"
    latex = "latex"


@app.command(epilog=EXAMPLES)
def table(
    runs: list[Path] = typer.Argument(help="Runs that were evaluated on the same suite or task."),
    suite: str | None = typer.Option(None, help="The suite to show.", show_default="that of the latest evaluation"),
    baseline: str | None = typer.Option(None, help="The recipe that the others are compared with."),
    format_: Format = typer.Option(Format.terminal, "--format", help="How to write the table."),
) -> None:
    """Print the evaluations of runs in one table: a row for each recipe, mean and deviation over its seeds.

    With --baseline, differences are tested: over seeds, and on the same examples.
    """
    from rosewood.comparison.compare import compared
    from rosewood.comparison.runs import load_runs
    from rosewood.results.grid import FORMATS, Folded

    grids = compared(load_runs(runs, suite), baseline)
    if format_ is Format.terminal:
        console = Console()
        for grid in grids:
            console.print(Folded(grid))
    else:
        print("\n\n".join(map(FORMATS[format_.value], grids)))
