"""rosewood dynamics: what runs did while they trained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer
from rich.console import Console

from rosewood.cli import app, examples
from rosewood.errors import RunError

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from rosewood.results.grid import Grid


@app.command(
    epilog=examples(
        "rosewood train --recipe rose-ensemble --watch masks --watch drift --watch inconsistency --output runs/rose",
        "rosewood dynamics runs/rose",
        "rosewood dynamics runs/vanilla runs/rose --at 50 --at 100 --output figures --format json",
    )
)
def dynamics(
    runs: list[Path] = typer.Argument(help="Runs that were trained with --watch."),
    at: list[int] = typer.Option(
        [], min=1, help="Show inconsistency over the first N steps (repeatable).", show_default="200 600 2000 4000"
    ),
    output: Path | None = typer.Option(
        None, "--output", "-o", help="Where figures go.", show_default="RUN/figures, or figures for several runs"
    ),
    format_: Literal["html", "json", "png", "svg", "pdf"] = typer.Option(
        "html", "--format", help="How to write the figures."
    ),
) -> None:
    """Show what runs recorded while they trained, as tables and figures.

    masks: which layers may move, and the second-order ratio of ROSE. drift: the distance to the pre-trained weights.
    inconsistency: how often two dropout passes predict different classes.
    """
    from rosewood.dynamics.record import was_watched
    from rosewood.lab.losses import run_names

    names = dict(zip(run_names(runs), runs, strict=True))
    seen = {name: was_watched(run) for name, run in names.items()}
    for name, run in names.items():
        if not seen[name]:
            what = "has no record of its training" if run.is_dir() else "does not exist"
            raise RunError(f"{run} {what}: train with --watch masks, drift or inconsistency")
    console = Console()
    folder = output or (runs[0] / "figures" if len(runs) == 1 else Path("figures"))
    for kind, show in (("drift", _drift), ("masks", _masks), ("inconsistency", _inconsistency)):
        watched = {name: run for name, run in names.items() if kind in seen[name]}
        if watched:
            _print(show(watched, at), folder, format_, console)
    console.print(f"Figures are in {folder}", highlight=False)


def _print(found: Iterator[Grid | tuple[str, go.Figure]], folder: Path, suffix: str, console: Console) -> None:
    """Tables go to the terminal, figures with their names to the folder."""
    from rosewood.report.figures.save import save
    from rosewood.results.grid import Folded, Grid

    for each in found:
        if isinstance(each, Grid):
            console.print(Folded(each))
        else:
            save(each[1], folder / f"{each[0]}.{suffix}")


def _drift(runs: Mapping[str, Path], at: Sequence[int]) -> Iterator[Grid | tuple[str, go.Figure]]:
    from rosewood.dynamics.drift import drift_table, read_drift
    from rosewood.report.figures.dynamics import drift

    found = [read_drift(run)._replace(run=name) for name, run in runs.items()]
    yield drift_table(found)
    yield "drift", drift(found)


def _masks(runs: Mapping[str, Path], at: Sequence[int]) -> Iterator[Grid | tuple[str, go.Figure]]:
    from rosewood.dynamics.masks import kept_by_tensor, kept_shares, kept_table, second_order_ratios
    from rosewood.report.figures.dynamics import mask_heatmap, second_order

    layers = [kept_shares(run)._replace(run=name) for name, run in runs.items()]
    tensors = [kept_by_tensor(run)._replace(run=name) for name, run in runs.items()]
    yield kept_table(layers, "layer", "tensors of a layer")
    yield kept_table(tensors, "kind of tensor", "layers that have such a tensor")
    named = [each._replace(run=f"{each.run}, by kind of tensor") for each in tensors]
    yield "masks", mask_heatmap([each for pair in zip(layers, named, strict=True) for each in pair])
    read = {name: second_order_ratios(run) for name, run in runs.items()}
    ratios = [found._replace(run=name) for name, found in read.items() if found is not None]
    if ratios:
        yield "second-order", second_order(ratios)


def _inconsistency(runs: Mapping[str, Path], at: Sequence[int]) -> Iterator[Grid | tuple[str, go.Figure]]:
    from rosewood.dynamics.inconsistency import MILESTONES, inconsistency_table, read_inconsistency
    from rosewood.report.figures.dynamics import inconsistency

    found = [read_inconsistency(run)._replace(run=name) for name, run in runs.items()]
    yield inconsistency_table(found, at or MILESTONES)
    yield "inconsistency", inconsistency(found)
