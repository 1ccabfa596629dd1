"""Whether the mean hides a group that fares worse."""

from __future__ import annotations

from rosewood.figures.groups import groups
from rosewood.report.parts import Chart, Charts, Part, Section, Table
from rosewood.report.subject import Subject

PLACE = 50


def section(subject: Subject) -> Section | None:
    """The groups of the clean sets; groups by columns of the data are in the table."""
    names = dict.fromkeys(
        each.name for run in subject.runs for each in run.evaluated.evaluation.sets if each.role == "clean"
    )
    charts = [
        Chart(figure, f"Dots with 95 % intervals: accuracy of each method on each group of {name}.")
        for name in names
        if (figure := groups(subject.methods, name)) is not None
    ]
    parts: list[Part] = [Charts(charts)] if charts else []
    parts += [Table(subject.tables["By column"], folded=True)] if "By column" in subject.tables else []
    return Section("Groups", parts, "Small groups have wide intervals.") if parts else None
