"""What training was like, step by step."""

from __future__ import annotations

from rosewood.report.figures.dynamics import training_curves
from rosewood.report.parts import Chart, Charts, Section
from rosewood.report.subject import Subject

PLACE = 80


def section(subject: Subject) -> Section | None:
    """A chart for each number that some run logged in every step."""
    names = dict.fromkeys(name for run in subject.runs for name in run.history)
    places = {run.name: subject.place(run.method) for run in subject.runs}
    charts = []
    for name in names:
        curves = {run.name: run.history[name] for run in subject.runs if name in run.history}
        words = f"Lines: {name.replace('_', ' ')} over training steps, one line a run."
        charts.append(Chart(training_curves(curves, name, places), words))
    lead = "Every loss term and whatever else was logged; of long trainings each point is a mean over many steps."
    return Section("Training", [Charts(charts, small=True)], lead) if charts else None
