"""How far each run went from its pre-trained weights."""

from __future__ import annotations

from rosewood.dynamics.drift import read_drift
from rosewood.dynamics.record import SeenDrift
from rosewood.dynamics.tables import drift_table
from rosewood.report.figures.dynamics import drift_by_layer, drift_over_steps
from rosewood.report.parts import Chart, Charts, Section, Table
from rosewood.report.subject import Subject

PLACE = 84


def section(subject: Subject) -> Section | None:
    """The whole encoder over steps, and each layer at the end."""
    runs = subject.watched(SeenDrift)
    if not runs:
        return None
    found = [read_drift(run.evaluated.folder)._replace(run=run.name) for run in runs]
    places = [subject.place(run.method) for run in runs]
    charts = [
        Chart(drift_over_steps(found, places), "Lines: distance of the whole encoder over steps, one line a run."),
        Chart(drift_by_layer(found, places), "Lines: distance of each layer after the last step, one line a run."),
    ]
    lead = "|θ − θ₀| / |θ₀|: how far the weights are from the pre-trained ones, as a share of their size."
    return Section("Drift", [Charts(charts, small=True), Table(drift_table(found), folded=True)], lead)
