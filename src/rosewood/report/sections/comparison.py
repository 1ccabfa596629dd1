"""The methods against each other: every figure with its interval, and what the tests say."""

from __future__ import annotations

from rosewood.evaluation.comparison import compared
from rosewood.figures.perspectives import perspectives
from rosewood.report.parts import Chart, Charts, Part, Section, Table
from rosewood.report.subject import Subject

PLACE = 10


def section(subject: Subject) -> Section | None:
    """The chart of perspectives, the table, and the differences on the same examples."""
    figure = perspectives(subject.methods)
    parts: list[Part] = []
    if figure is not None:
        words = "Dots with 95 % intervals: mean accuracy of each method on clean, shifted, adversarial and noisy sets."
        parts.append(Charts([Chart(figure, f"{words} The table below has the numbers.")]))
    first, *others = compared([run.evaluated for run in subject.runs], subject.baseline, subject.published)
    parts.append(Table(first))
    parts += [Table(grid, folded=True) for grid in others]
    return Section("Comparison", parts)
