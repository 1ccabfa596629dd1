"""rosewood landscape: how flat the loss is around models."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from rosewood.cli import app, resumable
from rosewood.config.settings import LARGEST_SEED

if TYPE_CHECKING:
    from rosewood.lab.landscape import Landscape

EXAMPLES = """
[bold]Examples[/]

  rosewood landscape runs/vanilla runs/rose --points 25 --output landscapes/sst2

  rosewood landscape runs/vanilla runs/overfitted runs/rose --pretrained -o landscapes/fig1
"""
NOTE = "the pre-trained encoder with the untrained head that the first run started from"


class Normalisation(StrEnum):
    """How directions get the scale of the weights."""

    filter = "filter"
    whole = "whole"


@app.command(epilog=EXAMPLES)
def landscape(
    runs: list[Path] = typer.Argument(help="Finished runs of the same architecture and labels."),
    output: Path = typer.Option(..., "--output", "-o", help="Folder for the results and figures."),
    pretrained: bool = typer.Option(False, "--pretrained", help="Also show the model that the first run started from."),
    data_dir: Path | None = typer.Option(
        None, envvar="ROSEWOOD_DATA", help="Folder with the task's files.", show_default="the first run's"
    ),
    split: str | None = typer.Option(None, help="Split of the first run's task.", show_default="test, or validation"),
    size: int = typer.Option(256, min=1, help="At most this many examples, the same for all runs."),
    points: int = typer.Option(51, min=5, help="Points along each axis; odd, so that one is the model itself."),
    radius: float = typer.Option(0.25, min=0.0, help="How far to go, as a share of the weights' norms."),
    normalisation: Normalisation = typer.Option(
        Normalisation.filter, help="Scale directions row by row (filter), or as one vector (whole)."
    ),
    threshold: float = typer.Option(0.1, min=0.0, help="Rise of the loss that bounds the basin."),
    hessian_iterations: int = typer.Option(
        20, min=0, help="At most this many steps for each of the Hessian's extreme eigenvalues; 0 leaves them out."
    ),
    batch_size: int = typer.Option(64, min=1),
    seed: int = typer.Option(0, min=0, max=LARGEST_SEED, help="Seed of the directions and of the examples' choice."),
) -> None:
    """Compute the loss around models in two random directions, and draw it as surfaces and contour lines.

    Given again after Ctrl-C or a crash, the command goes on: finished rows and models are kept in the output folder.
    """
    from rosewood.lab.landscape import grid_coordinates, loss_landscape, sharpness_table
    from rosewood.lab.losses import PRETRAINED, RunLosses
    from rosewood.results.grid import Folded
    from rosewood.results.run import typed_command

    grid_coordinates(points, radius)
    losses = RunLosses(runs, data_dir, split, size, batch_size, seed)
    console = Console()
    found = []
    with resumable(console):
        for name in [*([PRETRAINED] if pretrained else []), *losses.folders]:
            found.append(
                loss_landscape(
                    losses.at_the_start() if name == PRETRAINED else losses.of(name),
                    name,
                    source=losses.source,
                    points=points,
                    radius=radius,
                    seed=seed,
                    normalisation=normalisation.value,
                    threshold=threshold,
                    hessian_iterations=hessian_iterations,
                    output=output / f"{name}.json",
                    note=NOTE if name == PRETRAINED else "",
                    command=typed_command(),
                )
            )
    _draw(found, output)
    console.print(Folded(sharpness_table(found)))
    console.print(f"Figures: {output}/surfaces.html and contours.html", highlight=False)


def _draw(landscapes: Sequence[Landscape], output: Path) -> None:
    from rosewood.report.figures.lab import loss_contours, loss_surfaces
    from rosewood.report.figures.save import save

    save(loss_surfaces(landscapes), output / "surfaces.html")
    save(loss_contours(landscapes), output / "contours.html")
