"""rosewood interpolate: loss and accuracy on the line through two models."""

from __future__ import annotations

from pathlib import Path

import typer
from rich.console import Console

from rosewood.cli import app, resumable
from rosewood.config.settings import LARGEST_SEED

EXAMPLES = """
[bold]Examples[/]

  rosewood interpolate runs/rose runs/vanilla --output landscapes/line

  rosewood interpolate runs/rose runs/vanilla --size 512 --points 101 -o landscapes/line
"""


@app.command(epilog=EXAMPLES)
def interpolate(
    first: Path = typer.Argument(help="A finished run: share 0."),
    second: Path = typer.Argument(help="Another of the same architecture and labels: share 1."),
    output: Path = typer.Option(..., "--output", "-o", help="Folder for the result and figures."),
    data_dir: Path | None = typer.Option(
        None, envvar="ROSEWOOD_DATA", help="Folder with the task's files.", show_default="the first run's"
    ),
    split: str | None = typer.Option(None, help="Split of the first run's task.", show_default="test, or validation"),
    size: int = typer.Option(256, min=1, help="At most this many examples."),
    points: int = typer.Option(51, min=2, help="Points on the line; the two models are added."),
    start: float = typer.Option(-0.5, help="Share of the second model at the beginning of the line."),
    end: float = typer.Option(1.5, help="Share of the second model at its end."),
    batch_size: int = typer.Option(64, min=1),
    seed: int = typer.Option(0, min=0, max=LARGEST_SEED, help="Seed of the examples' choice."),
) -> None:
    """Measure models on the straight line through the weights of two runs, heads included.

    Given again after Ctrl-C or a crash, the command goes on where it ended.
    """
    from rosewood.lab.landscape import interpolate as measure
    from rosewood.lab.landscape import line_shares
    from rosewood.lab.losses import RunLosses
    from rosewood.report.figures.lab import loss_along_the_line
    from rosewood.report.figures.save import save

    line_shares(points, start, end)
    losses = RunLosses([first, second], data_dir, split, size, batch_size, seed)
    console = Console()
    one, other = losses.folders
    with resumable(console):
        line = measure(
            losses.of(one),
            losses.of(other),
            one,
            other,
            source=losses.source,
            points=points,
            start=start,
            end=end,
            output=output / "interpolation.json",
        )
    save(loss_along_the_line(line), output / "interpolation.html")
    between = [loss for share, loss in zip(line.shares, line.losses, strict=True) if 0 <= share <= 1]
    for share, loss, accuracy in zip(line.shares, line.losses, line.accuracies, strict=True):
        if share in (0.0, 1.0) or (0 < share < 1 and loss == max(between)):
            console.print(f"share {share:g}: loss {loss:.4f}, accuracy {accuracy:.1%}", highlight=False)
    console.print(f"Figure: {output}/interpolation.html", highlight=False)
