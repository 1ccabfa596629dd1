"""Whether models notice texts that they were not made for."""

from __future__ import annotations

from rosewood.report.figures.evaluation import anomalies, anomaly_scores
from rosewood.report.parts import Chart, Charts, Section, Table
from rosewood.report.subject import Subject

PLACE = 60


def section(subject: Subject) -> Section | None:
    """A chart for each score that could tell anomalies."""
    charts = [
        Chart(anomalies(subject.methods, score), f"Dots: AUROC of {score.replace('_', ' ')} on each set of anomalies.")
        for score in anomaly_scores(subject.methods)
    ]
    if not charts:
        return None
    lead = "How well each score of a model tells foreign texts from its own: 100 % is perfect, 50 % is chance."
    return Section("Anomalies", [Charts(charts, small=True), Table(subject.tables["Anomalies"], folded=True)], lead)
