"""Where texts lie before and after fine-tuning, and both on circles."""

from __future__ import annotations

import math
from pathlib import Path

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from rosewood.lab.geometry import Geometry
from rosewood.report.figures.style import TEXT, label, styled

SYMBOLS = ("triangle-up", "square", "circle", "diamond", "cross", "x", "star")
TITLES = ("before fine-tuning", "after fine-tuning", "circles: after (outer), before (inner)")


def geometry(found: Geometry) -> go.Figure:
    """Three maps of the same examples: a colour is an example, in the order of the outer circle, a shape is a class."""
    figure = make_subplots(1, 3, subplot_titles=TITLES, horizontal_spacing=0.04)
    around = sorted(range(len(found.classes)), key=lambda row: math.atan2(*found.student_circle[row]))
    hues = {row: hue for hue, row in enumerate(around)}
    for number, name in enumerate(found.labels):
        rows = [row for row, each in enumerate(found.classes) if each == number]
        if not rows:
            continue
        shape = {"size": 6, "symbol": SYMBOLS[number % len(SYMBOLS)]}
        same = {"mode": "markers", "name": label(name), "legendgroup": name}
        # The legend is about shapes: the colour of an example would mislead there.
        figure.add_scatter(x=[None], y=[None], marker={"color": TEXT, **shape}, **same, row=1, col=1)
        marker = {"color": [hues[row] for row in rows], "colorscale": "hsv", "cmin": 0, "cmax": len(hues), **shape}
        panels = [(found.teacher, 1), (found.student, 2), (found.teacher_circle, 3), (found.student_circle, 3)]
        for places, panel in panels:
            figure.add_scatter(
                x=[places[row][0] for row in rows],
                y=[places[row][1] for row in rows],
                marker=marker,
                **same,
                showlegend=False,
                row=1,
                col=panel,
            )
    figure.update_xaxes(showticklabels=False, showgrid=False, zeroline=False)
    figure.update_yaxes(showticklabels=False, showgrid=False, zeroline=False)
    figure.update_xaxes(range=[-1.15, 1.15], row=1, col=3)
    figure.update_yaxes(range=[-1.15, 1.15], scaleanchor="x3", constrain="domain", row=1, col=3)
    run = label(Path(found.run).name)
    title = f"Features of {len(found.classes)} texts (t-SNE){f': {run}' if run else ''}"
    return styled(figure, title).update_layout(width=1100, height=450, margin={"l": 20, "r": 20, "t": 90, "b": 60})
