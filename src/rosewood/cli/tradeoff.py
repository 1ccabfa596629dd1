"""rosewood tradeoff: clean against robust accuracy over one setting."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from rosewood.cli import app

if TYPE_CHECKING:
    from rosewood.lab.tradeoff import Tradeoff
    from rosewood.results.grid import Grid

EXAMPLES = """
[bold]Examples[/]

  rosewood tradeoff runs/adv-base-* --over objective.divergence_weight --under pwws

  rosewood tradeoff runs/rose-* --over selection.keep_quantile --under typos --output rose.html
"""


@app.command(epilog=EXAMPLES)
def tradeoff(
    runs: list[Path] = typer.Argument(help="Runs that were attacked or evaluated alike."),
    over: str = typer.Option(..., help="The setting that changes, such as selection.keep_quantile."),
    under: str = typer.Option(..., help="An attack, or a set or role of the evaluation: pwws, typos, adversarial."),
    suite: str | None = typer.Option(None, help="The suite to read.", show_default="that of the latest evaluation"),
    output: Path = typer.Option(
        Path("tradeoff.html"), "--output", "-o", help="The figure: .html, .json, .png, .svg or .pdf."
    ),
) -> None:
    """Draw clean against robust accuracy over a setting of the recipe, a curve for each recipe.

    Runs must have been attacked, or evaluated, with the same settings on the same examples.
    """
    from rosewood.lab.tradeoff import tradeoff as compute
    from rosewood.report.figures.lab import tradeoff as drawn
    from rosewood.report.figures.save import check_suffix, save
    from rosewood.results.grid import Folded

    check_suffix(output)
    found = compute(runs, over, under, suite)
    console = Console()
    console.print(Folded(_grid(found)))
    save(drawn(found), output)
    console.print(f"The figure is in {output}", highlight=False)


def _grid(found: Tradeoff) -> Grid:
    from rosewood.results.grid import Grid

    header = ["recipe", found.over.rpartition(".")[2], "seed", "clean", f"under {found.under}"]
    rows = [
        [
            point.recipe,
            point.setting if isinstance(point.setting, str) else f"{point.setting:g}",
            str(point.seed),
            f"{point.clean.value:.1%}",
            f"{point.robust.value:.1%}",
        ]
        for point in found.points
    ]
    return Grid(f"Clean and robust accuracy over {found.over}", header, rows, texts=1)
