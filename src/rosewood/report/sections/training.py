"""Sections on training and its analyses: curves, what may move, drift, inconsistency, the loss landscape."""

from __future__ import annotations

from rosewood.dynamics.drift import drift_table, read_drift
from rosewood.dynamics.inconsistency import inconsistency_table, read_inconsistency
from rosewood.dynamics.masks import kept_by_tensor, kept_shares, kept_table
from rosewood.dynamics.record import SeenDrift, SeenInconsistency, SeenMasks
from rosewood.lab.landscape import sharpness_table
from rosewood.report.figures.dynamics import (
    drift_by_layer,
    drift_over_steps,
    inconsistency,
    mask_heatmap,
    training_curves,
)
from rosewood.report.figures.lab import contours_apart
from rosewood.report.parts import Chart, Charts, Section, Table
from rosewood.report.sections import section
from rosewood.report.subject import ReportedRun, Subject


@section(place=82)
def masks_section(subject: Subject) -> Section | None:
    """Heat maps for the first run of each method that recorded its masks."""
    runs: dict[str, ReportedRun] = {}
    for run in subject.watched(SeenMasks):
        runs.setdefault(run.method, run)
    if not runs:
        return None
    layers = [kept_shares(run.evaluated.folder)._replace(run=run.name) for run in runs.values()]
    tensors = [kept_by_tensor(run.evaluated.folder)._replace(run=run.name) for run in runs.values()]
    words = "Heat map: kept share, from 0 to 1, over training steps"
    charts = [
        Chart(mask_heatmap(layers, "Share that may move, by layer"), f"{words}, a row for each layer."),
        Chart(mask_heatmap(tensors, "Share that may move, by kind of tensor"), f"{words}, a row for each kind."),
    ]
    tables = [
        kept_table(layers, "layer", "tensors of a layer"),
        kept_table(tensors, "kind of tensor", "layers that have such a tensor"),
    ]
    lead = "What the selection let through in each recorded step; every tensor counts the same, large or small."
    return Section("Selection", [Charts(charts), *(Table(table, folded=True) for table in tables)], lead)


@section(place=84)
def drift_section(subject: Subject) -> Section | None:
    """The whole encoder over steps, and each layer at the end."""
    runs = subject.watched(SeenDrift)
    if not runs:
        return None
    found = [read_drift(run.evaluated.folder)._replace(run=run.name) for run in runs]
    places = [subject.place(run.method) for run in runs]
    charts = [
        Chart(drift_over_steps(found, places), "Lines: distance of the whole encoder over steps, one line per run."),
        Chart(drift_by_layer(found, places), "Lines: distance of each layer after the last step, one line per run."),
    ]
    lead = "|θ − θ₀| / |θ₀|: how far the weights are from the pre-trained ones, as a share of their size."
    return Section("Drift", [Charts(charts, small=True), Table(drift_table(found), folded=True)], lead)


@section(place=86)
def inconsistency_section(subject: Subject) -> Section | None:
    """The share of predictions that differed, over all steps so far."""
    runs = subject.watched(SeenInconsistency)
    if not runs:
        return None
    found = [read_inconsistency(run.evaluated.folder)._replace(run=run.name) for run in runs]
    figure = inconsistency(found, [subject.place(run.method) for run in runs])
    chart = Chart(figure, "Lines: share of predictions that differ between two passes, one line per run.")
    lead = "How often two passes over the same texts, each with its own dropout, predicted different classes."
    return Section("Dropout inconsistency", [Charts([chart]), Table(inconsistency_table(found), folded=True)], lead)


@section(place=80)
def training_section(subject: Subject) -> Section | None:
    """A chart for each number that some run logged in every step."""
    names = dict.fromkeys(name for run in subject.runs for name in run.history)
    places = {run.name: subject.place(run.method) for run in subject.runs}
    charts = []
    for name in names:
        curves = {run.name: run.history[name] for run in subject.runs if name in run.history}
        words = f"Lines: {name.replace('_', ' ')} over training steps, one line per run."
        charts.append(Chart(training_curves(curves, name, places), words))
    lead = "Every loss term and whatever else was logged; of long trainings each point is a mean over many steps."
    return Section("Training", [Charts(charts, small=True)], lead) if charts else None


@section(place=88)
def landscape_section(subject: Subject) -> Section | None:
    """Contour lines of each landscape that the report was given, and the figures of its sharpness."""
    if not subject.landscapes:
        return None
    words = "Contour lines of the loss around the model, in two random directions a and b."
    charts = [Chart(figure, words) for figure in contours_apart(subject.landscapes)]
    lead = (
        "The loss around each model in two random directions, at the same levels for all: where lines are dense, it is "
        "steep. The model itself is in the centre."
    )
    return Section("Loss landscape", [Charts(charts, small=True), Table(sharpness_table(subject.landscapes))], lead)
