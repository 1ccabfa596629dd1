"""rosewood average: one model from the weights of several."""

from __future__ import annotations

from pathlib import Path

import typer
from rich.console import Console

from rosewood.cli import app, examples


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
