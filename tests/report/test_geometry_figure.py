"""Maps of features: a colour is an example, a shape a class, and circles are round."""

from __future__ import annotations

import math

from rosewood.lab.geometry import Geometry
from rosewood.report.figures.lab import geometry
from rosewood.report.figures.style import TEXT

ANGLES = (0.0, 1.0, 2.0, 3.0)


def around(radius: float) -> list[tuple[float, float]]:
    return [(radius * math.cos(angle), radius * math.sin(angle)) for angle in ANGLES]


def made_up() -> Geometry:
    maps = {"teacher": around(7), "student": around(5), "teacher_circle": around(0.9), "student_circle": around(1)}
    numbers = {"alignment": 0.5, "alignment_of_others": 0.1, "teacher_uniformity": -1, "student_uniformity": -2}
    run = {"run": "runs/rift", "pretrained": "tiny", "split": "test", "seed": 0}
    return Geometry(**run, labels=["<5 stars", "5 stars"], classes=[0, 1, 1, 0], **maps, **numbers)


def test_an_example_has_its_colour_everywhere_and_the_legend_none() -> None:
    figure = geometry(made_up())
    legend = [trace for trace in figure.data if trace.showlegend is not False]
    assert [(trace.name, trace.marker.color) for trace in legend] == [("&lt;5 stars", TEXT), ("5 stars", TEXT)]
    points = [trace for trace in figure.data if trace.showlegend is False]
    for name in ("&lt;5 stars", "5 stars"):
        assert len({trace.marker.color for trace in points if trace.name == name}) == 1
    assert sorted(hue for trace in points if trace.xaxis == "x" for hue in trace.marker.color) == [0, 1, 2, 3]
    assert {(trace.marker.cmin, trace.marker.cmax) for trace in points} == {(0, 4)}
    assert figure.layout.yaxis3.scaleanchor == "x3", "circles are round"
    assert figure.layout.title.text == "Features of 4 texts (t-SNE): rift"
