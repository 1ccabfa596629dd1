"""How flat the loss is around each model."""

from __future__ import annotations

from rosewood.lab.landscape import sharpness_table
from rosewood.report.figures.lab import contours_apart
from rosewood.report.parts import Chart, Charts, Section, Table
from rosewood.report.sections import section
from rosewood.report.subject import Subject


@section(place=88)
def landscape_section(subject: Subject) -> Section | None:
    """Contour lines of each landscape that the report was given, and the figures of its sharpness."""
    if not subject.landscapes:
        return None
    words = "Contour lines of the loss around the model, in two random directions a and b."
    charts = [Chart(figure, words) for figure in contours_apart(subject.landscapes)]
    lead = (
        "The loss around each model in two random directions, at the same levels for all: where lines are dense, it is "
        "steep. The model itself is in the centre."
    )
    return Section("Loss landscape", [Charts(charts, small=True), Table(sharpness_table(subject.landscapes))], lead)
