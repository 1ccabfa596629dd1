"""Chart kinds that several figures use: dots with intervals, and heat maps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from rosewood.comparison.methods import Figure, mean_of
from rosewood.dynamics.record import ByLayer
from rosewood.report.figures.style import GRID, TEXT, axis_title, drawn, folded, label, mark, styled
from rosewood.results.guessing import marked

ROW, DOT, FRAME = 18, 11, 110  # pixels: a row without its dots, each of its dots, and what stands around the rows


class Dot(NamedTuple):
    """A share with its 95 % interval, if it has one, and whether a model at guessing has it."""

    row: str
    series: str
    value: float
    interval: tuple[float, float] | None = None
    guessing: bool = False


def averaged(found: Iterable[tuple[str, str, Figure]]) -> list[Dot]:
    """The figures of single runs, by row and series, as one dot for all runs of a series."""
    together: dict[tuple[str, str], list[Figure]] = {}
    for row, series, figure in found:
        together.setdefault((row, series), []).append(figure)
    return [Dot(row, series, *mean_of(figures)) for (row, series), figures in together.items()]


def dots(
    found: Sequence[Dot], series: Sequence[str], title: str, axis: str, reference: float | None = None
) -> go.Figure:
    """The dots in %, rows from top to bottom as they come; the place in `series` decides the colour."""
    rows = list(dict.fromkeys(each.row for each in found))
    shown = [name for name in series if any(each.series == name for each in found)]
    figure = go.Figure()
    for name in shown:
        figure.add_trace(_trace(found, rows, name, series.index(name), _offset(shown.index(name), len(shown))))
    styled(figure, title)
    figure.update_layout(height=FRAME + len(rows) * (ROW + DOT * len(shown)), showlegend=True, hovermode="closest")
    figure.update_xaxes(title=axis_title(axis), automargin=True, zeroline=False)
    figure.update_yaxes(
        tickvals=list(range(len(rows))),
        ticktext=[label(row) for row in rows],
        range=[len(rows) - 0.5, -0.5],
        automargin=True,
        zeroline=False,
        showgrid=False,
    )
    for place in range(1, len(rows)):
        figure.add_hline(y=place - 0.5, line={"color": GRID, "width": 1})
    if reference is not None:
        figure.add_vline(x=100 * reference, line={"color": TEXT, "width": 1, "dash": "dash"})
    return figure


def _offset(place: int, count: int) -> float:
    """How far below the middle of its row a dot stands."""
    return 0.7 * ((place + 0.5) / count - 0.5)


def _trace(found: Sequence[Dot], rows: Sequence[str], name: str, place: int, offset: float) -> go.Scatter:
    own = [each for each in found if each.series == name]
    ends = [_clipped(each) for each in own]
    look = mark(place)
    return go.Scatter(
        x=[100 * each.value for each in own],
        y=[rows.index(each.row) + offset for each in own],
        error_x={
            "array": [100 * (high - each.value) for each, (_, high) in zip(own, ends, strict=True)],
            "arrayminus": [100 * (each.value - low) for each, (low, _) in zip(own, ends, strict=True)],
            "thickness": 1.5,
            "width": 3,
        },
        mode="markers",
        name=marked(label(name), any(each.guessing for each in own)),
        marker={"color": look.colour, "symbol": look.symbol, "size": 8},
        hovertext=[_hover(each) for each in own],
        hoverinfo="text",
    )


def _clipped(each: Dot) -> tuple[float, float]:
    """An interval over few seeds can reach beyond what a share can be."""
    low, high = each.interval or (each.value, each.value)
    return min(each.value, max(0.0, low)), max(each.value, min(1.0, high))


def _hover(each: Dot) -> str:
    text = f"{label(each.row)}<br>{label(each.series)}: {100 * each.value:.1f} %{' (at guessing)' * each.guessing}"
    if each.interval is None:
        return text
    low, high = _clipped(each)
    return f"{text} ({100 * low:.1f} to {100 * high:.1f})"


LINE = 24  # pixels; a layer whose name takes two lines gets one and a half


def heat_maps(tables: Sequence[ByLayer], title: str, scale: str, colours: dict[str, Any]) -> go.Figure:
    """One heat map below the other, with one scale of colours; the first layer is at the bottom, as in the model."""
    titles = [label(table.run, longest=60) for table in tables]
    names = [[folded(layer) for layer in table.layers] for table in tables]
    figure = make_subplots(len(tables), 1, subplot_titles=titles, vertical_spacing=0.3 / (len(tables) + 1))
    for row, table in enumerate(tables, 1):
        shown = drawn(table.steps)
        low, high = figure.layout[f"yaxis{row}" if row > 1 else "yaxis"].domain
        figure.add_heatmap(
            x=table.steps[shown],
            y=names[row - 1],
            z=[values[shown] for values in table.values],
            # One for each panel, so that pictures give all of them the same width.
            colorbar={"title": axis_title(scale), "thickness": 12, "y": (low + high) / 2, "len": high - low},
            hovertemplate="step %{x}, %{y}: %{z:.3g}<extra></extra>",
            row=row,
            col=1,
            **colours,
        )
    figure.update_xaxes(title=axis_title("step"), row=len(tables), col=1)
    longest = max(len(line) for layers in names for name in layers for line in name.split("<br>"))
    lines = sum(max(6, sum(1 + name.count("<br>") / 2 for name in layers)) for layers in names)
    return styled(figure, title).update_layout(
        width=900,
        height=140 + 60 * len(tables) + LINE * lines,
        margin={"l": 40 + 7 * longest, "r": 30, "t": 80, "b": 60},
    )
