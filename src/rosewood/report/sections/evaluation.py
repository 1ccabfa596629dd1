"""Sections on evaluations: the comparison, sets, noise, calibration, classes, groups and anomalies."""

from __future__ import annotations

from collections.abc import Sequence

from rosewood.comparison.methods import compared
from rosewood.comparison.runs import SharedTasks, shared_tasks
from rosewood.comparison.table import ACCURACY, classes_grid, confusion_grids, percent, with_interval
from rosewood.evaluation.measure import MEASURED
from rosewood.report.figures.evaluation import (
    anomalies,
    anomaly_scores,
    calibration,
    groups,
    noise_curves,
    noise_kinds,
    perspectives,
    reliability,
    sets,
    trade_off,
)
from rosewood.report.sections import Chart, Charts, Part, Section, Table, section
from rosewood.report.subject import ReportedRun, Subject
from rosewood.results.grid import Grid


@section(place=10)
def comparison_section(subject: Subject) -> Section | None:
    """The trade-off under attack, the chart of perspectives, the table, and the differences on the same examples."""
    charts = []
    if (figure := trade_off(subject.attacked, list(subject.methods))) is not None:
        words = (
            "A point for each method, with 95 % intervals: clean accuracy to the right, accuracy under attack upwards."
        )
        charts.append(Chart(figure, words))
    if (figure := perspectives(subject.by_method)) is not None:
        words = "Dots with 95 % intervals: mean accuracy of each method on clean, shifted, adversarial and noisy sets."
        charts.append(Chart(figure, f"{words} The table below has the numbers."))
    parts: list[Part] = [Charts(charts)] if charts else []
    first, *others = compared([run.evaluated for run in subject.runs], subject.baseline, subject.published)
    parts.append(Table(first))
    parts += [Table(grid, folded=True) for grid in others]
    return Section("Comparison", parts, _on_tasks(shared_tasks(subject.by_method)))


def _on_tasks(shared: SharedTasks) -> str:
    """What the chart's means are over, where the runs are on several tasks."""
    if len(shared.tasks) + len(shared.other_tasks) < 2:
        return ""
    if not shared.tasks:
        return "No task has runs of all methods, so there is no chart of means over tasks."
    parts = [
        f"The chart averages over tasks within each seed ({', '.join(shared.tasks)}); intervals are over seeds, or of "
        "a single seed over its examples."
    ]
    if shared.other_tasks:
        parts.append(f"Left out, because some method has no run on it: {', '.join(shared.other_tasks)}.")
    if shared.incomplete:
        parts.append(f"Runs left out because their seed lacks one of these tasks: {shared.incomplete}.")
    return " ".join(parts)


@section(place=20)
def sets_section(subject: Subject) -> Section | None:
    """A chart for each of clean, shifted and adversarial text; nothing where the comparison shows the same already."""
    if all(len([each for each in run.evaluated.evaluation.sets if each.role in MEASURED]) < 3 for run in subject.runs):
        return None
    figures = {role: figure for role in MEASURED if (figure := sets(subject.methods, role)) is not None}
    charts = [
        Chart(figure, f"Dots with 95 % intervals: accuracy of each method on each {role} set.")
        for role, figure in figures.items()
    ]
    parts: list[Part] = [Charts(charts)]
    parts += [Table(subject.tables["Sets"], folded=True)] if "Sets" in subject.tables else []
    return Section(
        "Every set", parts, "95 % intervals: Wilson's for a single run, Student's t for three seeds or more."
    )


@section(place=30)
def noise_section(subject: Subject) -> Section | None:
    """A curve for each kind of noise that was measured at several strengths."""
    charts = [
        Chart(noise_curves(subject.methods, kind), f"Lines: accuracy by strength of {kind.replace('_', ' ')}.")
        for kind in noise_kinds(subject.methods)
    ]
    if not charts:
        return None
    parts: list[Part] = [Charts(charts, small=True)]
    parts += [Table(subject.tables["Noise"], folded=True)] if "Noise" in subject.tables else []
    lead = "Strength is the share of the places in a text where the noise could strike and did; 0 is the text as it is."
    return Section("Noise", parts, lead)


@section(place=40)
def calibration_section(subject: Subject) -> Section | None:
    """Calibration errors of all sets, and a reliability diagram of each."""
    errors = calibration(subject.methods)
    if errors is None:
        return None
    parts: list[Part] = [Charts([Chart(errors, "Dots: expected calibration error of each method on each set.")])]
    names = dict.fromkeys(
        each.name for run in subject.runs for each in run.evaluated.evaluation.sets if each.role in MEASURED
    )
    diagrams = [
        Chart(figure, f"Reliability diagram of {name}: accuracy by confidence, one line per method.")
        for name in names
        if (figure := reliability(subject.methods, name)) is not None
    ]
    parts += [Charts(diagrams, small=True)] if diagrams else []
    parts.append(Table(_errors(subject.runs, list(names)), folded=True))
    lead = (
        "Expected calibration error in 10 bins. In the diagrams the dashed diagonal is perfect: below it a model is "
        "too sure of itself, above it not sure enough."
    )
    return Section("Calibration", parts, lead)


def _errors(runs: Sequence[ReportedRun], names: Sequence[str]) -> Grid:
    found = [{each.name: percent(each.ece) for each in run.evaluated.evaluation.sets} for run in runs]
    rows = [[name, *(errors.get(name, "missing") for errors in found)] for name in names]
    return Grid("Calibration", ["set", *(run.name for run in runs)], rows, "Expected calibration error in %.")


@section(place=45)
def classes_section(subject: Subject) -> Section | None:
    """Precision, recall and F1 of each label for every run, and a confusion matrix for the first run of each method."""
    first: dict[str, ReportedRun] = {}
    for run in subject.runs:
        first.setdefault(run.method, run)
    classes = classes_grid({run.name: run.evaluated.evaluation for run in subject.runs})
    if not classes.rows:
        return None
    matrices = confusion_grids({run.name: run.evaluated.evaluation for run in first.values()})
    parts: list[Part] = [Table(classes), *(Table(grid, folded=True) for grid in matrices if grid.rows)]
    return Section("Classes", parts, "On clean text. A good accuracy can hide a rare class that is never found.")


@section(place=50)
def groups_section(subject: Subject) -> Section | None:
    """The groups of the clean sets; those of other sets by columns of their data are in a table."""
    names = dict.fromkeys(
        each.name for run in subject.runs for each in run.evaluated.evaluation.sets if each.role == "clean"
    )
    charts = [
        Chart(figure, f"Dots with 95 % intervals: accuracy of each method on each group of {name}.")
        for name in names
        if (figure := groups(subject.methods, name)) is not None
    ]
    table = Table(_accuracies(subject.runs, list(names)), folded=True)
    parts: list[Part] = [Charts(charts), table] if charts else []
    parts += [Table(subject.tables["By column"], folded=True)] if "By column" in subject.tables else []
    return Section("Groups", parts, "Small groups have wide intervals.") if parts else None


def _accuracies(runs: Sequence[ReportedRun], names: Sequence[str]) -> Grid:
    found = [
        {
            (each.name, f"{group.kind}: {group.group}"): group
            for each in sets
            if each.name in names
            for group in each.groups
        }
        for sets in (run.evaluated.evaluation.sets for run in runs)
    ]
    keys = dict.fromkeys(key for groups in found for key in groups)
    rows = [[*key, *(with_interval(groups.get(key)) for groups in found)] for key in keys]
    return Grid("Groups", ["set", "group", *(run.name for run in runs)], rows, ACCURACY, texts=2)


@section(place=60)
def anomalies_section(subject: Subject) -> Section | None:
    """A chart for each score that could tell anomalies."""
    charts = [
        Chart(anomalies(subject.methods, score), f"Dots: AUROC of {score.replace('_', ' ')} on each set of anomalies.")
        for score in anomaly_scores(subject.methods)
    ]
    if not charts:
        return None
    lead = "How well each score of a model tells foreign texts from its own: 100 % is perfect, 50 % is chance."
    return Section("Anomalies", [Charts(charts, small=True), Table(subject.tables["Anomalies"], folded=True)], lead)
