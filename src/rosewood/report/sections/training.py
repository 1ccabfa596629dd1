"""Sections on the runs themselves: how training went, what was recorded meanwhile, and how to make them again."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

from rosewood.config.settings import AttackSettings
from rosewood.dynamics.drift import SeenDrift, drift_table, read_drift
from rosewood.dynamics.inconsistency import SeenInconsistency, inconsistency_table, read_inconsistency
from rosewood.dynamics.masks import SeenMasks, kept_by_tensor, kept_shares, kept_table
from rosewood.lab.landscape import sharpness_table
from rosewood.models.defended import FILE as DEFENCE
from rosewood.report.figures.dynamics import (
    drift_by_layer,
    drift_over_steps,
    inconsistency,
    mask_heatmap,
    training_curves,
)
from rosewood.report.figures.lab import contours_apart
from rosewood.report.sections import Chart, Charts, Listing, Part, Section, Table, section
from rosewood.report.subject import ReportedRun, Subject
from rosewood.results import AttackReport, Evaluation, RunInfo, TestFile
from rosewood.results.attack import SavedDefence
from rosewood.results.grid import Grid


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


@section(place=90)
def recipes_section(subject: Subject) -> Section | None:
    """One file per method."""
    found = {run.method: run.recipe for run in subject.runs if run.recipe is not None}
    listings = [Listing(method, text) for method, text in found.items()]
    lead = "Saved as a file, each can be given to rosewood train --recipe."
    return Section("Recipes", listings, lead) if listings else None


CELL = "cell.json"


@section(place=100)
def commands_section(subject: Subject) -> Section | None:
    """What was typed to train, what to type to evaluate and attack, and the versions that did it."""
    parts: list[Part] = [Listing("experiment", each) for each in _experiments(subject)]
    parts += [Listing(run.name, "\n".join(commands(run))) for run in subject.runs if not _is_cell(run)]
    landscapes = dict.fromkeys(each.command for each in subject.landscapes if each.command)
    parts += [Listing("loss landscapes", "\n".join(landscapes))] if landscapes else []
    rows = [_facts(run.name, run.info) for run in subject.runs if run.info is not None]
    if rows:
        header = ["run", "model", "seed", "training data", "software"]
        caption = "Training data are shown as fingerprints: equal data have equal ones."
        parts.append(Table(Grid("Models, data and versions", header, rows, caption, texts=5), folded=True))
    lead = (
        "Training, wrapping and landscapes as they were started; evaluation and attacks as the results say; an "
        "experiment by its file, or by its name where no more is known. Folders are those of the author."
    )
    return Section("Reproduce", parts, lead)


def _experiments(subject: Subject) -> list[str]:
    """One command for all cells of an experiment."""
    cells = [run for run in subject.runs if _is_cell(run)]
    folders = {
        run.evaluated.folder.absolute().parent.parent: None if run.info is None else run.info.data_dir for run in cells
    }
    return [
        shlex.join(
            ["rosewood", "compare", subject.experiment or output.name, "--output", str(output)]
            + ([] if data is None else ["--data-dir", data])
        )
        for output, data in folders.items()
    ]


def _is_cell(run: ReportedRun) -> bool:
    """Whether an experiment made the run: then its commands are not the user's, and its results do not tell them."""
    return (run.evaluated.folder.parent / CELL).exists()


def commands(run: ReportedRun) -> Iterator[str]:
    """The command lines of one run."""
    folder = str(run.evaluated.folder)
    if run.info is not None and run.info.command:
        yield run.info.command
    defence = saved_defence(run.evaluated.folder)
    if defence is not None and defence.command:
        yield defence.command
    yield shlex.join(["rosewood", "evaluate", folder, *_evaluation(run.evaluated.evaluation)])
    for attack in run.evaluated.attacks:
        yield shlex.join(["rosewood", "attack", folder, *_attack(attack.report)])


def saved_defence(folder: Path) -> SavedDefence | None:
    """The defence around the model of a run, or around a checkpoint; None without one."""
    files = [place / DEFENCE for place in (folder / "model", folder)]
    return next((SavedDefence.load(file) for file in files if file.exists()), None)


def _own_file(own: TestFile | None) -> Iterator[str]:
    if own is None:
        return
    yield from ("--test-file", own.file)
    for name in own.text_columns:
        yield from ("--text-column", name)
    if own.label_column is not None:
        yield from ("--label-column", own.label_column)


def _evaluation(evaluation: Evaluation) -> Iterator[str]:
    yield from _own_file(evaluation.test_file)
    if evaluation.suite is not None:
        yield from ("--suite", evaluation.suite)
    if evaluation.size is not None:
        yield from ("--size", str(evaluation.size))
    if evaluation.max_length is not None:
        yield from ("--max-length", str(evaluation.max_length))
    if evaluation.typo_rate is not None:
        yield from ("--typo-rate", f"{evaluation.typo_rate:g}")
    for live in evaluation.attacks:
        yield from ("--attack", live.attack)
    if evaluation.attacks:
        summary = evaluation.attacks[0].summary
        yield from ("--attack-examples", str(summary.examples + summary.left_out))
    yield from ("--seed", str(evaluation.seed))


def _attack(report: AttackReport) -> Iterator[str]:
    recipe = report.settings.get("recipe")
    if report.protocol is not None:
        yield from ("--protocol", report.protocol)
    yield from ("--attack", report.attack if recipe is None else f"{report.attack}:{recipe}")
    for name, value in report.settings.items():
        if name != "recipe":
            yield from ("--set", f"{name}={json.dumps(value)}")
    if report.lexicon_name is not None:
        yield from ("--lexicon", report.lexicon_name)
    examples = report.summary.examples + report.summary.left_out
    yield from ("--examples", str(examples))
    yield from _own_file(report.test_file)
    if report.split is not None and report.test_file is None:
        yield from ("--split", report.split)
    yield from report.only(AttackSettings).words()


def _facts(name: str, info: RunInfo) -> list[str]:
    data = ", ".join(f"{split} {fingerprint}" for split, fingerprint in info.fingerprints.items())
    software = ", ".join(f"{package} {version}" for package, version in info.versions.items())
    return [name, info.model, str(info.seed), data, software]
