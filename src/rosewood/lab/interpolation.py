"""The loss and accuracy on the straight line through two models (ROSE, Figure 4, equation 7)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedModel

from rosewood.errors import RunError
from rosewood.lab.directions import excursion, weights_of
from rosewood.lab.losses import FixedLoss, MeasuredFile, check_alike, kind_of
from rosewood.lab.runs import progress_bar
from rosewood.models.modes import evaluating
from rosewood.results import Share
from rosewood.results.files import fingerprint_of
from rosewood.results.journal import RowJournal


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
    With `output` (a .json file) it is written there, and goes on where a killed call ended. Both models keep their
    weights; besides them this takes one buffer of their size.
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
    """Statistics that are no weights, such as those of batch normalisation, have no place on a line."""
    own, theirs = dict(model.named_buffers()), dict(other.named_buffers())
    differing = [name for name in own if name in theirs and not torch.equal(own[name], theirs[name])]
    if differing:
        raise RunError(f"{first} and {second} differ in {differing[0]}, which is no weight and cannot be interpolated.")


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
