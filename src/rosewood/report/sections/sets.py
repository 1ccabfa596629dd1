"""Accuracy on every set, perspective by perspective."""

from __future__ import annotations

from rosewood.evaluation.means import MEASURED
from rosewood.report.figures.evaluation import sets
from rosewood.report.parts import Chart, Charts, Part, Section, Table
from rosewood.report.subject import Subject

PLACE = 20


def section(subject: Subject) -> Section | None:
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
        "Every set", parts, "Intervals are of 95 %: of a single run Wilson's, over three seeds or more Student's."
    )
