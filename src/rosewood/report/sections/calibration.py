"""Whether models are as right as they say they are sure."""

from __future__ import annotations

from collections.abc import Sequence

from rosewood.comparison.table import percent
from rosewood.evaluation.means import MEASURED
from rosewood.report.figures.calibration import calibration, reliability
from rosewood.report.parts import Chart, Charts, Part, Section, Table
from rosewood.report.subject import ReportedRun, Subject
from rosewood.results.grid import Grid

PLACE = 40


def section(subject: Subject) -> Section | None:
    """Calibration errors of all sets, and a reliability diagram of each."""
    errors = calibration(subject.methods)
    if errors is None:
        return None
    parts: list[Part] = [Charts([Chart(errors, "Dots: expected calibration error of each method on each set.")])]
    names = dict.fromkeys(
        each.name for run in subject.runs for each in run.evaluated.evaluation.sets if each.role in MEASURED
    )
    diagrams = [
        Chart(figure, f"Reliability diagram of {name}: accuracy by confidence, one line a method.")
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
