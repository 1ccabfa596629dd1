"""rosewood report: evaluated runs as one page."""

from __future__ import annotations

from pathlib import Path

import typer
from rich.console import Console

from rosewood.cli import app
from rosewood.errors import RunError

EXAMPLES = """
[bold]Examples[/]

  rosewood report runs/vanilla runs/rose

  rosewood report runs/* --baseline vanilla --suite sentiment --output report.html

  rosewood report runs/vanilla runs/rose --landscape landscapes/sst2
"""


@app.command(epilog=EXAMPLES)
def report(
    runs: list[Path] = typer.Argument(help="Runs that were evaluated on the same suite or task."),
    output: Path = typer.Option(Path("report.html"), "--output", "-o", help="The file to write."),
    suite: str | None = typer.Option(None, help="The suite to show.", show_default="that of the latest evaluation"),
    baseline: str | None = typer.Option(
        None, help="The recipe that the others are tested against.", show_default="vanilla, if it is among the runs"
    ),
    landscape: Path | None = typer.Option(
        None, help="Folder that rosewood landscape wrote for these runs.", show_default="none"
    ),
    title: str | None = typer.Option(None, help="The title of the page.", show_default="the suite or task"),
    overwrite: bool = typer.Option(False, "--overwrite", help="Replace the file if there is one."),
) -> None:
    """Write one page that shows how robust runs are: verdict, table, charts, attacked texts, recipes, commands.

    The page is a single file that needs no network. It shows what the runs hold: evaluate and attack them first.
    """
    if output.suffix.lower() not in (".html", ".htm"):
        raise RunError(f"a report is a page: expected --output to end in .html, got {output}")
    if output.exists() and not overwrite:
        raise RunError(f"{output} exists: add --overwrite, or choose another --output")
    console = Console()
    with console.status("reading runs"):
        from rosewood.comparison.runs import load_runs
        from rosewood.report.page import write_report
        from rosewood.report.subject import subject

        found = subject(load_runs(runs, suite), baseline, landscape=landscape)
    with console.status("drawing"):
        write_report([found], output, title)
    console.print(f"The report is in {output}", highlight=False, soft_wrap=True, markup=False)
