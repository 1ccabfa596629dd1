"""rosewood dynamics: what runs did while they trained."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from rosewood.cli import app
from rosewood.errors import RunError

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from rosewood.evaluation.layout import Grid

EXAMPLES = """
[bold]Examples[/]

  rosewood train --recipe rose-ensemble --watch masks --watch drift --watch inconsistency --output runs/rose

  rosewood dynamics runs/rose

  rosewood dynamics runs/vanilla runs/rose --at 50 --at 100 --output figures --format png
"""


class FigureFormat(StrEnum):
    """How figures are written."""

    html = "html"
    json = "json"
    png = "png"
    svg = "svg"
    pdf = "pdf"


@app.command(epilog=EXAMPLES)
def dynamics(
    runs: list[Path] = typer.Argument(help="Runs that were trained with --watch."),
    at: list[int] = typer.Option(
        [], min=1, help="Show inconsistency over the first N steps (repeatable).", show_default="200 600 2000 4000"
    ),
    output: Path | None = typer.Option(
        None, "--output", "-o", help="Where figures go.", show_default="RUN/figures, or figures for several runs"
    ),
    format_: FigureFormat = typer.Option(FigureFormat.html, "--format", help="How to write the figures."),
) -> None:
    """Show what runs recorded while they trained, as tables and figures.

    masks: which layers may move, and the second-order ratio of ROSE. drift: the distance to the pre-trained weights.
    inconsistency: how often two dropout passes predict different classes.
    """
    from rosewood.watched import was_watched

    seen = {run: was_watched(run) for run in runs}
    for run, watches in seen.items():
        if not watches:
            raise RunError(f"{run} has no record of its training: train with --watch masks, drift or inconsistency")
    console = Console()
    folder = output or (runs[0] / "figures" if len(runs) == 1 else Path("figures"))
    for kind, show in (("drift", _drift), ("masks", _masks), ("inconsistency", _inconsistency)):
        watched = [run for run, watches in seen.items() if kind in watches]
        if watched:
            _print(show(watched, at), folder, format_.value, console)
    console.print(f"Figures are in {folder}", highlight=False)


def _print(found: Iterator[Grid | tuple[str, go.Figure]], folder: Path, suffix: str, console: Console) -> None:
    """Tables go to the terminal, figures with their names to the folder."""
    from rosewood.evaluation.layout import Folded, Grid
    from rosewood.figures.save import save

    for each in found:
        if isinstance(each, Grid):
            console.print(Folded(each))
        else:
            save(each[1], folder / f"{each[0]}.{suffix}")


def _drift(runs: Sequence[Path], at: Sequence[int]) -> Iterator[Grid | tuple[str, go.Figure]]:
    from rosewood.analysis.drift import read_drift
    from rosewood.figures.drift import drift

    found = [read_drift(run) for run in runs]
    ends = [each.last() for each in found]
    steps = ", ".join(f"{Path(each.run).name} after {each.steps[-1]} steps" for each in found)
    yield _by_layer("Drift", runs, ends, "{:.4f}", f"Relative distance to the pre-trained weights; {steps}.")
    yield "drift", drift(found)


def _masks(runs: Sequence[Path], at: Sequence[int]) -> Iterator[Grid | tuple[str, go.Figure]]:
    from rosewood.analysis.masks import kept_by_tensor, kept_shares, mean_kept, second_order_ratios
    from rosewood.figures.mask_heatmap import mask_heatmap
    from rosewood.figures.second_order import second_order

    layers, tensors = [kept_shares(run) for run in runs], [kept_by_tensor(run) for run in runs]
    for shares, caption in ((layers, "tensors of a layer"), (tensors, "layers that have such a tensor")):
        means = [mean_kept(each) for each in shares]
        yield _by_layer("Share that may move", runs, means, "{:.1%}", f"Mean over recorded steps and {caption}.")
    yield "masks", mask_heatmap([each for pair in zip(layers, tensors, strict=True) for each in pair])
    ratios = [found for run in runs if (found := second_order_ratios(run)) is not None]
    if ratios:
        yield "second-order", second_order(ratios)


def _inconsistency(runs: Sequence[Path], at: Sequence[int]) -> Iterator[Grid | tuple[str, go.Figure]]:
    from rosewood.analysis.inconsistency import MILESTONES, read_inconsistency
    from rosewood.evaluation.layout import Grid
    from rosewood.figures.inconsistency import inconsistency

    found = [read_inconsistency(run) for run in runs]
    tables = [each.at(at or MILESTONES) for each in found]
    steps = sorted({step for table in tables for step in table})
    rows = [
        [run.name, *(f"{table[step]:.2%}" if step in table else "" for step in steps)]
        for run, table in zip(runs, tables, strict=True)
    ]
    caption = "Predictions whose class differs between two dropout passes, over the first N steps."
    yield Grid("Dropout inconsistency", ["run", *map(str, steps)], rows, caption)
    yield "inconsistency", inconsistency(found)


def _by_layer(title: str, runs: Sequence[Path], columns: Sequence[dict[str, float]], form: str, caption: str) -> Grid:
    from rosewood.evaluation.layout import Grid

    layers = list(dict.fromkeys(layer for column in columns for layer in column))
    rows = [[layer, *(form.format(each[layer]) if layer in each else "" for each in columns)] for layer in layers]
    return Grid(title, ["", *(run.name for run in runs)], rows, caption)
