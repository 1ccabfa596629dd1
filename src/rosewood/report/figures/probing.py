"""Probing: one point a run, between generalising by surface and by grammar (ROSE, Figure 3)."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from rosewood.lab.probing import ProbedRun, Probing
from rosewood.report.figures.style import TEXT, colour, label, styled

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
