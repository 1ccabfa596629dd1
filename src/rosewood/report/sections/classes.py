"""Which labels a model gets right, and what it takes them for."""

from __future__ import annotations

from rosewood.comparison.by_class import classes_grid, confusion_grids
from rosewood.report.parts import Part, Section, Table
from rosewood.report.subject import ReportedRun, Subject

PLACE = 45


def section(subject: Subject) -> Section | None:
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
