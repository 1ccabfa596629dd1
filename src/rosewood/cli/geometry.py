"""rosewood geometry: what fine-tuning did to the features of texts."""

from __future__ import annotations

from pathlib import Path

import typer
from rich.console import Console

from rosewood.cli import app
from rosewood.config.settings import LARGEST_SEED

EXAMPLES = """
[bold]Examples[/]

  rosewood geometry runs/rift

  rosewood geometry runs/rift --examples 200 --output rift.html
"""


@app.command(epilog=EXAMPLES)
def geometry(
    run: Path = typer.Argument(help="A finished run."),
    examples: int = typer.Option(500, min=5, help="A seeded sample of at most this size."),
    split: str | None = typer.Option(None, help="The split to take.", show_default="test, or else validation"),
    data_dir: Path | None = typer.Option(
        None, envvar="ROSEWOOD_DATA", help="Folder with the task's files.", show_default="the run's"
    ),
    output: Path | None = typer.Option(
        None, "--output", "-o", help="The figure: .html, .json, .png, .svg or .pdf.", show_default="RUN/geometry.html"
    ),
    seed: int = typer.Option(0, min=0, max=LARGEST_SEED, help="Seed of the sample and of t-SNE."),
    batch_size: int = typer.Option(64, min=1),
) -> None:
    """Draw the features of a run and of its pre-trained model, with t-SNE and as two circles.

    The numbers behind the figure are written to RUN/geometry.json.
    """
    from rosewood.report.figures.save import check_suffix, save

    place = output or run / "geometry.html"
    check_suffix(place)
    from transformers.utils.logging import disable_progress_bar

    from rosewood.lab.geometry import geometry as compute
    from rosewood.report.figures.lab import geometry as drawn

    disable_progress_bar()  # transformers' bar for loading says nothing at this size
    found = compute(run, split, examples, data_dir, seed, batch_size)
    save(drawn(found), place)
    console = Console()
    console.print(
        f"{len(found.classes)} texts of {found.split}. Mean cosine of a text's features before and after: "
        f"{found.alignment:.3f} (of different texts of a class: {found.alignment_of_others:.3f}). Uniformity, lower is "
        f"more spread: {found.teacher_uniformity:.3f} before, {found.student_uniformity:.3f} after.",
        highlight=False,
    )
    console.print(f"The figure is in {place}", highlight=False)
