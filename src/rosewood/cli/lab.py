"""rosewood dynamics, geometry, interpolate, landscape and tradeoff: analyses of finished runs, as figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer
from rich.console import Console

from rosewood.cli import app, check_models, examples, resumable
from rosewood.cli.options import BATCH_SIZE, FIGURE_SPLIT, FIRST_RUN_DATA_DIR, RUN_DATA_DIR, SUITE
from rosewood.config.settings import LARGEST_SEED
from rosewood.errors import RunError

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from rosewood.lab.landscape import Landscape
    from rosewood.lab.tradeoff import Tradeoff
    from rosewood.results.grid import Grid


@app.command(
    epilog=examples(
        "rosewood geometry runs/rift",
        "rosewood geometry runs/rift --examples 200 --output rift.html",
    )
)
def geometry(
    run: Path = typer.Argument(help="A finished run."),
    examples: int = typer.Option(500, min=5, help="A seeded sample of at most this size."),
    split: str | None = typer.Option(None, help="The split to take.", show_default="test, or else validation"),
    data_dir: Path | None = RUN_DATA_DIR,
    output: Path | None = typer.Option(
        None, "--output", "-o", help="The figure: .html, .json, .png, .svg or .pdf.", show_default="RUN/geometry.html"
    ),
    seed: int = typer.Option(0, min=0, max=LARGEST_SEED, help="Seed of the sample and of t-SNE."),
    batch_size: int = BATCH_SIZE,
) -> None:
    """Draw the features of a run and of its pre-trained model, with t-SNE and as two circles.

    The numbers behind the figure are written to RUN/geometry.json.
    """
    check_models([run])
    from rosewood.report.figures.style import check_suffix, save

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


@app.command(
    epilog=examples(
        "rosewood interpolate runs/rose runs/vanilla --output landscapes/line",
        "rosewood interpolate runs/rose runs/vanilla --size 512 --points 101 -o landscapes/line",
    )
)
def interpolate(
    first: Path = typer.Argument(help="A finished run: share 0."),
    second: Path = typer.Argument(help="Another of the same architecture and labels: share 1."),
    output: Path = typer.Option(..., "--output", "-o", help="Folder for the result and figures."),
    data_dir: Path | None = FIRST_RUN_DATA_DIR,
    split: str | None = FIGURE_SPLIT,
    size: int = typer.Option(256, min=1, help="At most this many examples."),
    points: int = typer.Option(51, min=2, help="Points on the line; the two models are added."),
    start: float = typer.Option(-0.5, help="Share of the second model at the beginning of the line."),
    end: float = typer.Option(1.5, help="Share of the second model at its end."),
    batch_size: int = BATCH_SIZE,
    seed: int = typer.Option(0, min=0, max=LARGEST_SEED, help="Seed of the examples' choice."),
) -> None:
    """Measure models on the straight line through the weights of two runs, heads included.

    Run the same command again to continue after Ctrl-C or a crash.
    """
    check_models([first, second])
    from rosewood.lab.landscape import interpolate as measure
    from rosewood.lab.landscape import line_shares
    from rosewood.lab.losses import RunLosses
    from rosewood.report.figures.lab import loss_along_the_line
    from rosewood.report.figures.style import save

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


NOTE = "the pre-trained encoder with the untrained head that the first run started from"


@app.command(
    epilog=examples(
        "rosewood landscape runs/vanilla runs/rose --points 25 --output landscapes/sst2",
        "rosewood landscape runs/vanilla runs/overfitted runs/rose --pretrained -o landscapes/fig1",
    )
)
def landscape(
    runs: list[Path] = typer.Argument(help="Finished runs of the same architecture and labels."),
    output: Path = typer.Option(..., "--output", "-o", help="Folder for the results and figures."),
    pretrained: bool = typer.Option(False, "--pretrained", help="Also show the model that the first run started from."),
    data_dir: Path | None = FIRST_RUN_DATA_DIR,
    split: str | None = FIGURE_SPLIT,
    size: int = typer.Option(256, min=1, help="At most this many examples, the same for all runs."),
    points: int = typer.Option(51, min=5, help="Points along each axis; odd, so that one is the model itself."),
    radius: float = typer.Option(0.25, min=0.0, help="How far to go, as a share of the weights' norms."),
    normalisation: Literal["filter", "whole"] = typer.Option(
        "filter", help="Scale directions row by row (filter), or as one vector (whole)."
    ),
    threshold: float = typer.Option(0.1, min=0.0, help="Rise of the loss that bounds the basin."),
    hessian_iterations: int = typer.Option(
        20, min=0, help="At most this many steps for each of the Hessian's extreme eigenvalues; 0 leaves them out."
    ),
    batch_size: int = BATCH_SIZE,
    seed: int = typer.Option(0, min=0, max=LARGEST_SEED, help="Seed of the directions and of the examples' choice."),
) -> None:
    """Compute the loss around models in two random directions, and draw it as surfaces and contour lines.

    Run the same command again to continue after Ctrl-C or a crash: finished rows and models are kept in --output.
    """
    check_models(runs)
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
                    normalisation=normalisation,
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
    from rosewood.report.figures.style import save

    save(loss_surfaces(landscapes), output / "surfaces.html")
    save(loss_contours(landscapes), output / "contours.html")


@app.command(
    epilog=examples(
        "rosewood tradeoff runs/adv-base-* --over objective.divergence_weight --under pwws",
        "rosewood tradeoff runs/rose-* --over selection.keep_quantile --under typos --output rose.html",
    )
)
def tradeoff(
    runs: list[Path] = typer.Argument(help="Runs that were attacked or evaluated alike."),
    over: str = typer.Option(..., help="The setting that changes, such as selection.keep_quantile."),
    under: str = typer.Option(..., help="An attack, or a set or role of the evaluation: pwws, typos, adversarial."),
    suite: str | None = SUITE,
    output: Path = typer.Option(
        Path("tradeoff.html"), "--output", "-o", help="The figure: .html, .json, .png, .svg or .pdf."
    ),
) -> None:
    """Draw clean against robust accuracy over a setting of the recipe, a curve for each recipe.

    Runs must have been attacked, or evaluated, with the same settings on the same examples.
    """
    check_models(runs)
    from rosewood.lab.tradeoff import tradeoff as compute
    from rosewood.report.figures.lab import tradeoff as drawn
    from rosewood.report.figures.style import check_suffix, save
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
    check_models(runs)
    from rosewood.dynamics import was_watched
    from rosewood.lab.losses import run_names

    names = dict(zip(run_names(runs), runs, strict=True))
    seen = {name: was_watched(run) for name, run in names.items()}
    for name, run in names.items():
        if not seen[name]:
            raise RunError(f"{run} has no record of its training: train with --watch masks, drift or inconsistency")
    console = Console()
    folder = output or (runs[0] / "figures" if len(runs) == 1 else Path("figures"))
    for kind, show in (("drift", _drift), ("masks", _masks), ("inconsistency", _inconsistency)):
        watched = {name: run for name, run in names.items() if kind in seen[name]}
        if watched:
            _print(show(watched, at), folder, format_, console)
    console.print(f"Figures are in {folder}", highlight=False)


def _print(found: Iterator[Grid | tuple[str, go.Figure]], folder: Path, suffix: str, console: Console) -> None:
    """Tables go to the terminal, figures with their names to the folder."""
    from rosewood.report.figures.style import save
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
