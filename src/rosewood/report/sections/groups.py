"""Whether the mean hides a group that fares worse."""

from __future__ import annotations

from collections.abc import Sequence

from rosewood.comparison.table import ACCURACY, with_interval
from rosewood.report.figures.evaluation import groups
from rosewood.report.parts import Chart, Charts, Part, Section, Table
from rosewood.report.subject import ReportedRun, Subject
from rosewood.results.grid import Grid

PLACE = 50


def section(subject: Subject) -> Section | None:
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
