"""Figures of the loss: around models (ROSE, Figures 1 and 2), and on the line between two (Figure 4)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from rosewood.lab.interpolation import Interpolation
from rosewood.lab.landscape import Landscape, eigenvalue
from rosewood.report.figures.style import SEQUENTIAL, TEXT, axis_title, colour, label, styled

ACROSS = 4
PANEL = 320  # pixels
LEVELS = 20
BELOW = {"orientation": "h", "y": -0.22, "yanchor": "top"}  # leaves the whole width to the square above
# Plotly's own place is so near that the corners of a surface are cut off.
VIEWER = {"x": 1.9, "y": -1.9, "z": 1.2}


def loss_surfaces(landscapes: Sequence[Landscape]) -> go.Figure:
    """One surface a model, all on the same scale, with the figures of its sharpness above it."""
    figure = _panels(landscapes, "scene")
    low, high = _bounds(landscapes)
    for landscape, (row, column) in zip(landscapes, _places(landscapes), strict=True):
        x = landscape.coordinates
        figure.add_surface(
            x=x, y=x, z=landscape.losses, coloraxis="coloraxis", name=label(landscape.name), row=row, col=column
        )
    titles = {"xaxis": "b", "yaxis": "a", "zaxis": "loss"}
    sides = {side: {"title": axis_title(text), "tickfont": {"size": 11}} for side, text in titles.items()}
    figure.update_scenes(sides, camera={"eye": VIEWER}, aspectmode="cube")
    figure.update_scenes(zaxis={"range": [low, high], "nticks": 4})
    return _finished(figure, landscapes, "Loss surfaces")


def loss_contours(landscapes: Sequence[Landscape]) -> go.Figure:
    """Lines of equal loss, at the same levels for all models: where they are dense, the loss is steep."""
    figure = _panels(landscapes, "xy")
    low, high = _bounds(landscapes)
    levels = {"start": low, "end": high, "size": (high - low) / LEVELS}
    for landscape, (row, column) in zip(landscapes, _places(landscapes), strict=True):
        x = landscape.coordinates
        figure.add_contour(
            x=x,
            y=x,
            z=landscape.losses,
            contours=levels,
            coloraxis="coloraxis",
            name=label(landscape.name),
            row=row,
            col=column,
        )
    figure.update_xaxes(title={"text": "b"}, constrain="domain")
    figure.update_yaxes(title={"text": "a"}, constrain="domain")
    figure.for_each_yaxis(lambda axis: axis.update(scaleanchor=axis.anchor))  # a is as long as b
    return _finished(figure, landscapes, "Loss contours")


def contours_apart(landscapes: Sequence[Landscape]) -> list[go.Figure]:
    """The same as one figure a model, for pages that lay them out by themselves."""
    return [_contour(landscape, _bounds(landscapes)) for landscape in landscapes]


def _contour(landscape: Landscape, bounds: tuple[float, float]) -> go.Figure:
    low, high = bounds
    x = landscape.coordinates
    figure = go.Figure()
    figure.add_contour(
        x=x,
        y=x,
        z=landscape.losses,
        contours={"start": low, "end": high, "size": (high - low) / LEVELS},
        colorscale=SEQUENTIAL,
        zmin=low,
        zmax=high,
        colorbar={"title": axis_title("loss"), "thickness": 12, "tickformat": ".3g", "tickangle": 0, **BELOW},
    )
    figure.update_xaxes(title=axis_title("b"), constrain="domain")
    figure.update_yaxes(title=axis_title("a"), automargin=True, scaleanchor="x", constrain="domain")
    return styled(figure, label(landscape.name)).update_layout(height=PANEL + 60)


def _panels(landscapes: Sequence[Landscape], kind: str) -> go.Figure:
    rows, columns = _shape(landscapes)
    return make_subplots(
        rows,
        columns,
        specs=[[{"type": kind}] * columns for _ in range(rows)],
        subplot_titles=[_caption(landscape) for landscape in landscapes],
        horizontal_spacing=0.24 / columns,
        vertical_spacing=0.3 / rows,
    )


def _finished(figure: go.Figure, landscapes: Sequence[Landscape], title: str) -> go.Figure:
    rows, columns = _shape(landscapes)
    low, high = _bounds(landscapes)
    first = landscapes[0]
    styled(figure, f"{title}: {label(first.source, longest=60)}" if first.source else title)
    figure.update_annotations(font={"size": 11})
    return figure.update_layout(
        width=max(500, PANEL * columns + 200),
        height=PANEL * rows + 190,
        margin={"l": 60, "r": 140, "t": 130, "b": 50},
        coloraxis={
            "colorscale": SEQUENTIAL,
            "cmin": low,
            "cmax": high,
            "colorbar": {"title": {"text": "loss"}, "x": 1 + 0.16 / columns},
        },
    )


def _caption(landscape: Landscape) -> str:
    """Name and sharpness, a line each."""
    sharpness = landscape.sharpness
    facts = [f"loss {landscape.loss:.3f}, accuracy {landscape.accuracy:.1%}"]
    if sharpness.mean_rise is not None and sharpness.basin_area is not None:
        at_least = "≥ " if sharpness.basin_is_cut else ""
        facts.append(f"mean rise {sharpness.mean_rise:.3f}, basin {at_least}{sharpness.basin_area:.3f}")
    ends = {"largest positive": (sharpness.top_eigenvalue, 1), "most negative": (sharpness.bottom_eigenvalue, -1)}
    facts += [f"{name} eigenvalue {eigenvalue(each, sign)}" for name, (each, sign) in ends.items() if each is not None]
    return "<br>".join([f"<b>{label(landscape.name)}</b>", *facts])


def _shape(landscapes: Sequence[Landscape]) -> tuple[int, int]:
    return math.ceil(len(landscapes) / ACROSS), min(len(landscapes), ACROSS)


def _places(landscapes: Sequence[Landscape]) -> Iterator[tuple[int, int]]:
    return ((place // ACROSS + 1, place % ACROSS + 1) for place in range(len(landscapes)))


def _bounds(landscapes: Sequence[Landscape]) -> tuple[float, float]:
    """The lowest and the highest loss of all, leaving out what is not finite."""
    finite = [loss for each in landscapes for row in each.losses for loss in row if math.isfinite(loss)]
    low, high = min(finite, default=0.0), max(finite, default=1.0)
    return (low, high) if low < high else (low, low + 1.0)


def loss_along_the_line(line: Interpolation) -> go.Figure:
    """The loss on the left axis, the accuracy on the right one, and the two models as upright lines."""
    figure = make_subplots(specs=[[{"secondary_y": True}]])
    curves = [("loss", line.losses, "solid", False), ("accuracy", line.accuracies, "dash", True)]
    for place, (name, values, dash, right) in enumerate(curves):
        style = {"color": colour(place), "dash": dash}
        figure.add_scatter(x=line.shares, y=values, name=name, mode="lines", line=style, secondary_y=right)
    for share, name in ((0.0, line.first), (1.0, line.second)):
        if line.shares[0] <= share <= line.shares[-1]:
            figure.add_vline(x=share, line={"color": TEXT, "dash": "dot", "width": 1})
            note = {"x": share, "y": 1, "xref": "x", "yref": "paper", "yanchor": "bottom", "showarrow": False}
            figure.add_annotation(text=label(name), **note)
    figure.update_xaxes(title={"text": "share of the second model's weights"})
    figure.update_yaxes(title={"text": "loss"}, secondary_y=False)
    figure.update_yaxes(title={"text": "accuracy"}, tickformat=".0%", secondary_y=True)
    title = f"From {label(line.first)} to {label(line.second)}"
    styled(figure, f"{title}: {label(line.source, longest=60)}" if line.source else title)
    figure.update_yaxes(showgrid=False, secondary_y=True)
    return figure.update_layout(width=760, height=480, margin={"l": 70, "r": 80, "t": 90, "b": 90})
