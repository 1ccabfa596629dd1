"""The methods against each other: every figure with its interval, and what the tests say."""

from __future__ import annotations

from rosewood.comparison.compare import compared
from rosewood.comparison.runs import SharedTasks, shared_tasks
from rosewood.report.figures.evaluation import perspectives
from rosewood.report.parts import Chart, Charts, Part, Section, Table
from rosewood.report.subject import Subject

PLACE = 10


def section(subject: Subject) -> Section | None:
    """The chart of perspectives, the table, and the differences on the same examples."""
    figure = perspectives(subject.by_method)
    parts: list[Part] = []
    if figure is not None:
        words = "Dots with 95 % intervals: mean accuracy of each method on clean, shifted, adversarial and noisy sets."
        parts.append(Charts([Chart(figure, f"{words} The table below has the numbers.")]))
    first, *others = compared([run.evaluated for run in subject.runs], subject.baseline, subject.published)
    parts.append(Table(first))
    parts += [Table(grid, folded=True) for grid in others]
    return Section("Comparison", parts, _on_tasks(shared_tasks(subject.by_method)))


def _on_tasks(shared: SharedTasks) -> str:
    """What the chart's means are over, where the runs are on several tasks."""
    if len(shared.tasks) + len(shared.other_tasks) < 2:
        return ""
    if not shared.tasks:
        return "No task has runs of all methods, so that no chart of means over tasks compares them."
    parts = [
        f"The chart averages over tasks within each seed ({', '.join(shared.tasks)}); intervals are over seeds, or of "
        "a single seed over its examples."
    ]
    if shared.other_tasks:
        parts.append(f"Not in it, because some method has no run on it: {', '.join(shared.other_tasks)}.")
    if shared.incomplete:
        parts.append(f"Nor are runs of seeds that lack one of these tasks: {shared.incomplete}.")
    return " ".join(parts)
