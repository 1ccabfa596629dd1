"""Accuracy by the strength of noise."""

from __future__ import annotations

from rosewood.report.figures.evaluation import noise_curves, noise_kinds
from rosewood.report.parts import Chart, Charts, Part, Section, Table
from rosewood.report.subject import Subject

PLACE = 30


def section(subject: Subject) -> Section | None:
    """A curve for each kind of noise that was measured at several strengths."""
    charts = [
        Chart(noise_curves(subject.methods, kind), f"Lines: accuracy by strength of {kind.replace('_', ' ')}.")
        for kind in noise_kinds(subject.methods)
    ]
    if not charts:
        return None
    parts: list[Part] = [Charts(charts, small=True)]
    parts += [Table(subject.tables["Noise"], folded=True)] if "Noise" in subject.tables else []
    lead = "Strength is the share of the places in a text where the noise could strike and did; 0 is the text as it is."
    return Section("Noise", parts, lead)
