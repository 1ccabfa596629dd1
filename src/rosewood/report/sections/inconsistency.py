"""How often dropout alone changed a prediction."""

from __future__ import annotations

from rosewood.dynamics.inconsistency import read_inconsistency
from rosewood.dynamics.record import SeenInconsistency
from rosewood.dynamics.tables import inconsistency_table
from rosewood.report.figures.dynamics import inconsistency
from rosewood.report.parts import Chart, Charts, Section, Table
from rosewood.report.subject import Subject

PLACE = 86


def section(subject: Subject) -> Section | None:
    """The share of predictions that differed, over all steps so far."""
    runs = subject.watched(SeenInconsistency)
    if not runs:
        return None
    found = [read_inconsistency(run.evaluated.folder)._replace(run=run.name) for run in runs]
    figure = inconsistency(found, [subject.place(run.method) for run in runs])
    chart = Chart(figure, "Lines: share of predictions that differ between two passes, one line a run.")
    lead = "How often two passes over the same texts, each with its own dropout, predicted different classes."
    return Section("Dropout inconsistency", [Charts([chart]), Table(inconsistency_table(found), folded=True)], lead)
