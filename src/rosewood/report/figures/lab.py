"""Figures of the lab (landscapes, interpolation, geometry, probing, trade-off) and of a hardening."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from statistics import mean

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from rosewood.lab.geometry import Geometry
from rosewood.lab.landscape import Interpolation, Landscape, eigenvalue
from rosewood.lab.probing import ProbedRun, Probing
from rosewood.lab.tradeoff import Tradeoff, TradeoffPoint
from rosewood.report.figures.style import SEQUENTIAL, TEXT, axis_title, colour, label, styled
from rosewood.results import Hardening
from rosewood.tensors.statistics import wilson_interval

ACROSS = 4
PANEL = 320  # pixels
LEVELS = 20
BELOW = {"orientation": "h", "y": -0.22, "yanchor": "top"}  # leaves the whole width to the square above
# Plotly's own place is so near that the corners of a surface are cut off.
VIEWER = {"x": 1.9, "y": -1.9, "z": 1.2}


def loss_surfaces(landscapes: Sequence[Landscape]) -> go.Figure:
    """One surface for each model, all on the same scale, with the figures of its sharpness above it.

    Args:
        landscapes: what `loss_landscape` gives.

    Returns:
        A Plotly figure.

    Example:
        >>> from rosewood.lab import Landscape
        >>> loss_surfaces([Landscape.load("landscapes/rose.json")])  # doctest: +SKIP
    """
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
    """Lines of equal loss, at the same levels for all models: where they are dense, the loss is steep.

    Args:
        landscapes: what `loss_landscape` gives.

    Returns:
        A Plotly figure.

    Example:
        >>> from rosewood.lab import Landscape
        >>> loss_contours([Landscape.load("landscapes/rose.json")])  # doctest: +SKIP
    """
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
    """The same as one figure per model, for pages that lay them out by themselves."""
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
    """Name and sharpness, one per line."""
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
    """The loss on the left axis, the accuracy on the right one, and the two models as upright lines.

    Args:
        line: what `interpolate` gives.

    Returns:
        A Plotly figure.

    Example:
        >>> from rosewood.lab import Interpolation
        >>> loss_along_the_line(Interpolation.load("line/interpolation.json"))  # doctest: +SKIP
    """
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


_SPREAD = 0.3  # of the points of one recipe, to either side
_REACH = 1.1  # points at +1 and -1 stay whole


def probing_figure(probing: Probing) -> go.Figure:
    """A panel for each task, a column for each recipe: every run, their median, and their mean with its interval."""
    tasks = list(dict.fromkeys(each.task for each in probing.recipes))
    recipes = list(dict.fromkeys(each.label for each in probing.recipes))
    titles = [label(task) for task in tasks]
    figure = make_subplots(cols=len(tasks), shared_yaxes=True, subplot_titles=titles, horizontal_spacing=0.05)
    for column, task in enumerate(tasks, start=1):
        for place, recipe in enumerate(recipes):
            runs = [run for run in probing.runs if (run.task, run.label) == (task, recipe)]
            for trace in _traces(probing, runs, place, first=column == 1 and place == 0):
                figure.add_trace(trace, row=1, col=column)
        ticks = {"tickvals": list(range(len(recipes))), "ticktext": [label(recipe) for recipe in recipes]}
        figure.update_xaxes(**ticks, range=[-0.6, len(recipes) - 0.4], row=1, col=column)
    figure.add_hline(0, line={"color": TEXT, "width": 1, "dash": "dot"})
    figure.update_yaxes(range=[-_REACH, _REACH])
    figure.update_yaxes(title="Matthews' correlation: -1 surface, +1 linguistic", col=1)
    figure.update_annotations(font={"size": 12})
    figure.update_layout(width=max(480, 380 * len(tasks)), height=480)
    return styled(figure, f"What {label(probing.model)} generalises by")


def _traces(probing: Probing, runs: Sequence[ProbedRun], place: int, first: bool) -> list[go.Scatter]:
    if not runs:
        return []
    found = next(each for each in probing.recipes if (each.task, each.label) == (runs[0].task, runs[0].label))
    low, high = found.interval or (found.mean, found.mean)
    across = [place + shift for shift in _shifts(len(runs))]
    points = go.Scatter(
        x=across,
        y=[run.matthews for run in runs],
        mode="markers",
        marker={"color": colour(0), "size": 9},
        opacity=0.7,
        name="run",
        text=[f"{label(run.label)}, seed {run.seed}" for run in runs],
        hovertemplate="%{text}: %{y:.2f}<extra></extra>",
    )
    middle = go.Scatter(
        x=[place - _SPREAD, place + _SPREAD],
        y=[found.median] * 2,
        mode="lines",
        line={"color": colour(1), "width": 2},
        name="median",
        hoverinfo="skip",
    )
    mean = go.Scatter(
        x=[place],
        y=[found.mean],
        mode="markers",
        marker={"color": colour(2), "size": 10, "symbol": "diamond"},
        error_y={"array": [high - found.mean], "arrayminus": [found.mean - low], "visible": found.interval is not None},
        name="mean, 95 % interval",
        text=[label(found.label)],
        hovertemplate="%{text}, mean: %{y:.2f}<extra></extra>",
    )
    return [trace.update(showlegend=first, legendgroup=trace.name) for trace in (points, middle, mean)]


def _shifts(count: int) -> list[float]:
    """Places side by side, so that equal scores stay visible."""
    return [0.0] if count == 1 else [_SPREAD * (2 * number / (count - 1) - 1) for number in range(count)]


def tradeoff(found: Tradeoff) -> go.Figure:
    """A curve for each recipe, through the means over seeds of each value; single runs have their intervals."""
    figure = go.Figure()
    for place, (recipe, runs) in enumerate(groupby(found.points, key=lambda point: point.recipe)):
        by_value = [list(points) for _, points in groupby(runs, key=lambda point: point.setting)]
        figure.add_scatter(
            x=[mean(point.clean.value for point in points) for points in by_value],
            y=[mean(point.robust.value for point in points) for points in by_value],
            error_x=_spread(by_value, "clean"),
            error_y=_spread(by_value, "robust"),
            text=[_written(points[0]) for points in by_value],
            textposition="top right",
            mode="lines+markers+text",
            name=label(recipe),
            line={"color": colour(place)},
        )
    figure.update_xaxes(title_text="clean accuracy", tickformat=".1%")
    figure.update_yaxes(title_text=f"accuracy under {label(found.under)}", tickformat=".1%")
    return styled(figure, f"Clean and robust accuracy over {label(found.over, longest=60)}").update_layout(
        width=700, height=500, showlegend=True, margin={"l": 80, "r": 30, "t": 80, "b": 90}
    )


def _written(point: TradeoffPoint) -> str:
    return label(point.setting) if isinstance(point.setting, str) else f"{point.setting:g}"


def _spread(by_value: Sequence[Sequence[TradeoffPoint]], axis: str) -> dict[str, object]:
    """The 95 % interval where there is one run; over several seeds, from the least to the most accurate."""
    above, below = [], []
    for points in by_value:
        found = [getattr(point, axis) for point in points]
        middle = mean(each.value for each in found)
        ends = found[0].interval if len(found) == 1 else tuple(each.value for each in found)
        above.append(max(ends) - middle)
        below.append(middle - min(ends))
    return {"type": "data", "array": above, "arrayminus": below, "thickness": 1}


def hardening(state: Hardening) -> go.Figure:
    """A point for each candidate with its intervals; the start and the winner have colours of their own."""
    figure = go.Figure()
    start = state.tried[0]
    for each in state.tried:
        place = 1 if each is start else 0 if each.candidate == state.winner else 4
        figure.add_scatter(
            x=[each.clean_accuracy],
            y=[each.robust_accuracy],
            error_x=_interval(each.right),
            error_y=_interval(each.robust),
            text=[label(each.candidate)],
            textposition="top right",
            mode="markers+text",
            name=label(each.candidate),
            marker={"color": colour(place), "size": 11 if place < 2 else 8},
        )
    figure.add_vline(start.clean_accuracy - state.max_clean_loss / 100, line={"dash": "dot", "color": colour(4)})
    figure.update_xaxes(title_text="clean accuracy", tickformat=".0%")
    figure.update_yaxes(title_text=label(f"right under {' and '.join(state.threats)}", 60), tickformat=".0%")
    return styled(
        figure, "All candidates on held-out rows; dotted: the least clean accuracy that was allowed"
    ).update_layout(width=800, height=560, showlegend=False, margin={"l": 80, "r": 120, "t": 80, "b": 70})


def _interval(right: list[bool]) -> dict[str, object]:
    value, (low, high) = sum(right) / len(right), wilson_interval(sum(right), len(right))
    return {"type": "data", "array": [high - value], "arrayminus": [value - low], "thickness": 1}
