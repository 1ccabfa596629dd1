"""The loss on a grid around a model, and on the line through two (ROSE, Figures 1, 2 and 4, equations 6 and 7)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from rich.progress import Progress
from transformers import PreTrainedModel

from rosewood.errors import RunError
from rosewood.lab.losses import FixedLoss, MeasuredFile, check_alike, kind_of, progress_bar
from rosewood.lab.sharpness import (
    Eigenvalue,
    Normalisation,
    Sharpness,
    excursion,
    extreme_eigenvalues,
    random_directions,
    sharpness_of,
    weights_of,
)
from rosewood.models.modes import evaluating
from rosewood.results import Share
from rosewood.results.files import fingerprint_of
from rosewood.results.grid import Grid
from rosewood.results.work_folder import RowJournal


class Landscape(MeasuredFile):
    """The loss at home + a direction 1 + b direction 2; nothing in it depends on when, or in how many goes, it ran."""

    name: str
    seed: int  # of the directions
    normalisation: Normalisation
    coordinates: list[float]
    losses: list[list[float]]  # losses[i][j] is at a = coordinates[i], b = coordinates[j]
    accuracy: Share  # in the centre
    sharpness: Sharpness
    note: str = ""
    command: str = ""  # as it was typed, where it was

    @property
    def loss(self) -> float:
        """In the centre: that of the model itself."""
        middle = len(self.coordinates) // 2
        return self.losses[middle][middle]


def loss_landscape(
    loss: FixedLoss,
    name: str,
    *,
    source: str = "",
    points: int = 51,
    radius: float = 0.25,
    seed: int = 0,
    normalisation: Normalisation = "filter",
    threshold: float = 0.1,
    hessian_iterations: int = 20,
    output: str | Path | None = None,
    note: str = "",
    command: str = "",
    progress: bool = True,
) -> Landscape:
    """The loss on `points` x `points` places up to `radius` times the weights' norms away, in evaluation mode.

    Models with the same shapes get the same random directions from the same seed. The model's weights end as they
    began. Besides the model this takes three buffers of their size: the two directions and the weights on the way.

    Args:
        loss: the model and the examples.
        name: the name of the model.
        source: where the examples come from.
        points: places along each axis; odd, so that one is the model itself.
        radius: how far to go, as a share of the weights' norms.
        seed: of the directions.
        normalisation: scales directions row by row (`filter`) or as one vector (`whole`).
        threshold: the rise of the loss that bounds the basin.
        hessian_iterations: steps for each of the Hessian's extreme eigenvalues, at most; 0 leaves them out.
        output: a .json file for the result. Every finished row is kept, and the same call goes on where a killed one
            ended, to the same bytes.
        note: what the model is, for the figure.
        command: the command that makes this, for the file.
        progress: whether to show a bar.

    Returns:
        The losses of all places, and figures of the model's sharpness.

    Raises:
        RunError: a setting is out of its range.

    Example:
        >>> found = loss_landscape(FixedLoss(model, tokenizer, rows), "rose", points=25)  # doctest: +SKIP
        >>> found.sharpness  # doctest: +SKIP
    """
    coordinates = grid_coordinates(points, radius)
    if not threshold > 0:
        raise RunError(f"expected a threshold above 0, a rise of the loss that bounds the basin; got {threshold}.")
    settings = [
        loss.fingerprint,
        name,
        source,
        note,
        points,
        radius,
        seed,
        normalisation,
        threshold,
        hessian_iterations,
    ]
    fingerprint = fingerprint_of(settings)
    path = None if output is None else Path(output)
    if (finished := Landscape.finished(path, fingerprint)) is not None:
        return finished
    journal = RowJournal(path, fingerprint)
    known = journal.begin()
    with progress_bar(progress) as bar, evaluating(loss.model):
        accuracy = loss.measure().accuracy
        losses = _grid(loss, coordinates, seed, normalisation, journal, known, bar, name)
        eigenvalues = _curvature(loss, hessian_iterations, bar, name)
    result = Landscape(
        name=name,
        source=source,
        data=loss.data,
        examples=loss.examples,
        fingerprint=fingerprint,
        seed=seed,
        normalisation=normalisation,
        coordinates=coordinates,
        losses=losses,
        accuracy=accuracy,
        sharpness=sharpness_of(coordinates, losses, threshold, eigenvalues),
        note=note,
        command=command,
    )
    if path is not None:
        result.save(path)
        journal.remove()
    return result


def grid_coordinates(points: int, radius: float) -> list[float]:
    """Evenly from -radius to radius, with 0 exactly in the middle."""
    if points < 5 or points % 2 == 0:
        raise RunError(f"expected an odd number of points, 5 or more, so that one is the model itself; got {points}.")
    if not 0 < radius < float("inf"):
        raise RunError(f"expected a radius above 0, as a share of the weights' norms; got {radius}.")
    return [radius * (2 * place / (points - 1) - 1) for place in range(points)]


def _grid(
    loss: FixedLoss,
    coordinates: Sequence[float],
    seed: int,
    normalisation: Normalisation,
    journal: RowJournal,
    known: dict[int, list[float]],
    bar: Progress,
    name: str,
) -> list[list[float]]:
    task = bar.add_task(name, total=len(coordinates) ** 2, completed=len(known) * len(coordinates))
    rows = dict(known)
    missing = [row for row in range(len(coordinates)) if row not in rows]
    if missing:
        directions = random_directions(loss.model, 2, seed, normalisation)
        with excursion(loss.model) as trip:
            for row in missing:
                rows[row] = []
                for b in coordinates:
                    trip.go(directions, (coordinates[row], b))
                    rows[row].append(loss.measure().loss)
                    bar.advance(task)
                journal.append(row, rows[row])
    return [rows[row] for row in range(len(coordinates))]


def _curvature(loss: FixedLoss, iterations: int, bar: Progress, name: str) -> tuple[Eigenvalue, Eigenvalue] | None:
    if not iterations:
        return None
    task = bar.add_task(f"{name}: curvature", total=2 * iterations)
    found = extreme_eigenvalues(loss.model, loss.shares, iterations, advance=lambda: bar.advance(task))
    bar.update(task, completed=2 * iterations)
    return found


EXTREMES = ("largest\npositive\neigenvalue", "most\nnegative\neigenvalue")


def sharpness_table(landscapes: Sequence[Landscape]) -> Grid:
    """One row per model; all were measured alike."""
    first = landscapes[0]
    headings = (f"mean rise\nat {first.sharpness.radius:g}", f"basin\nbelow +{first.sharpness.threshold:g}")
    rows = [[each.name, f"{each.loss:.4f}", f"{each.accuracy:.1%}", *_figures(each)] for each in landscapes]
    notes = " ".join(f"{each.name}: {each.note}." for each in landscapes if each.note)
    header = ["model", "loss", "accuracy", *headings, *EXTREMES]
    return Grid(f"Sharpness: {first.source}", header, rows, notes)


def _figures(landscape: Landscape) -> tuple[str, str, str, str]:
    found = landscape.sharpness
    rise = "-" if found.mean_rise is None else f"{found.mean_rise:.4f}"
    area = "-" if found.basin_area is None else f"{'≥ ' if found.basin_is_cut else ''}{found.basin_area:.4f}"
    return rise, area, eigenvalue(found.top_eigenvalue, 1), eigenvalue(found.bottom_eigenvalue, -1)


def eigenvalue(found: Eigenvalue | None, sign: int) -> str:
    """An eigenvalue of this sign; at the end of few steps there may be none."""
    if found is None:
        return "-"
    return f"{found.value:.4g} ± {found.residual:.2g}" if sign * found.value > 0 else "none found"


class Interpolation(MeasuredFile):
    """What (1 - share) first + share second gives, heads included."""

    first: str
    second: str
    shares: list[float]
    losses: list[float]
    accuracies: list[Share]


def interpolate(
    loss: FixedLoss,
    other: FixedLoss,
    first: str,
    second: str,
    *,
    source: str = "",
    points: int = 51,
    start: float = -0.5,
    end: float = 1.5,
    output: str | Path | None = None,
    progress: bool = True,
) -> Interpolation:
    """Measure `points` models evenly on the line from one (share 0) through the other (share 1).

    ROSE's 51 points from -0.5 to 1.5 hit neither model, so the two ends are measured besides, where the line has them.
    Both models keep their weights; besides them this takes one buffer of their size.

    Args:
        loss: the first model and the examples.
        other: the second model and the same examples.
        first: the name of the first model.
        second: the name of the second model.
        source: where the examples come from.
        points: how many models.
        start: share of the second model at the beginning of the line.
        end: share of the second model at the end of the line.
        output: a .json file for the result; the same call goes on there where a killed one ended.
        progress: whether to show a bar.

    Returns:
        Loss and accuracy of each model on the line.

    Raises:
        RunError: the models or their examples differ, or the line has fewer than two points.

    Example:
        >>> line = interpolate(losses.of("vanilla"), losses.of("rose"), "vanilla", "rose")  # doctest: +SKIP
        >>> max(line.losses)  # doctest: +SKIP
    """
    shares = line_shares(points, start, end)
    check_alike({first: kind_of(loss.model), second: kind_of(other.model)})
    if loss.data != other.data:
        raise RunError(f"expected one set of examples for both models; {first} and {second} were given different ones.")
    _check_buffers(loss.model, other.model, first, second)
    settings = [loss.fingerprint, other.fingerprint, first, second, source, shares]
    fingerprint = fingerprint_of(settings)
    path = None if output is None else Path(output)
    if (finished := Interpolation.finished(path, fingerprint)) is not None:
        return finished
    journal = RowJournal(path, fingerprint)
    measured = _measure(loss, other, shares, journal, progress)
    result = Interpolation(
        first=first,
        second=second,
        source=source,
        data=loss.data,
        examples=loss.examples,
        fingerprint=fingerprint,
        shares=shares,
        losses=[loss for loss, _ in measured],
        accuracies=[accuracy for _, accuracy in measured],
    )
    if path is not None:
        result.save(path)
        journal.remove()
    return result


def line_shares(points: int, start: float, end: float) -> list[float]:
    """Even shares from start to end, with 0 and 1 added where they are within."""
    if points < 2 or not start < end:
        raise RunError(f"expected 2 points or more, from a smaller share to a larger; got {points}, {start} to {end}.")
    even = [round(float(share), 12) for share in np.linspace(start, end, points)]
    return sorted({*even, *(share for share in (0.0, 1.0) if start <= share <= end)})


def _check_buffers(model: PreTrainedModel, other: PreTrainedModel, first: str, second: str) -> None:
    """Statistics that are not weights, such as those of batch normalisation, have no place on a line."""
    own, theirs = dict(model.named_buffers()), dict(other.named_buffers())
    differing = [name for name in own if name in theirs and not torch.equal(own[name], theirs[name])]
    if differing:
        raise RunError(f"{first} and {second} differ in {differing[0]}, not a weight, so they cannot be interpolated.")


def _measure(
    loss: FixedLoss, other: FixedLoss, shares: list[float], journal: RowJournal, progress: bool
) -> list[list[float]]:
    known = journal.begin()
    theirs = [parameter.data for parameter in weights_of(other.model)]
    with progress_bar(progress) as bar, evaluating(loss.model), excursion(loss.model) as trip:
        for place, share in enumerate(bar.track(shares, description="interpolate")):
            if place not in known:
                trip.go_between(theirs, share)
                known[place] = [*loss.measure()]
                journal.append(place, known[place])
    return [known[place] for place in range(len(shares))]
