"""Text from data on figures: as it is, short, and never markup."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import plotly.graph_objects as go
import pytest

from rosewood.dynamics.record import ByLayer
from rosewood.lab.landscape import Interpolation, Landscape, grid_coordinates
from rosewood.lab.probing import ProbedRecipe, ProbedRun, Probing
from rosewood.lab.sharpness import Sharpness
from rosewood.lab.tradeoff import Accuracy, Tradeoff, TradeoffPoint
from rosewood.report.figures.dynamics import mask_heatmap
from rosewood.report.figures.lab import loss_along_the_line, loss_contours, loss_surfaces, probing_figure, tradeoff
from rosewood.report.figures.style import folded

EVIL = "<a href='javascript:x'>&amp;"
MEASURED: dict[str, Any] = {"source": EVIL, "data": "d", "examples": 8, "fingerprint": "f"}


def landscape() -> Landscape:
    bare = Sharpness(radius=0.25, mean_rise=None, threshold=0.1, basin_area=None, basin_is_cut=None)
    coordinates = grid_coordinates(5, 0.25)
    shape: dict[str, Any] = {"coordinates": coordinates, "losses": [[abs(b) for b in coordinates]] * 5}
    return Landscape(name=EVIL, seed=0, normalisation="filter", accuracy=0.5, sharpness=bare, **shape, **MEASURED)


def line() -> Interpolation:
    return Interpolation(first=EVIL, second=EVIL, shares=[0, 1], losses=[1, 2], accuracies=[0.5, 0.5], **MEASURED)


def probing() -> Probing:
    same: dict[str, Any] = {"task": EVIL, "label": EVIL, "validation_accuracy": 1.0, "ambiguous_accuracy": None}
    run = ProbedRun(seed=0, matthews=0.5, matthews_in_domain=None, **same)
    recipe = ProbedRecipe(seeds=[0], mean=0.5, median=0.5, interval=None, in_domain_mean=None, **same)
    return Probing(model=EVIL, runs=[run], recipes=[recipe])


def swept() -> Tradeoff:
    half = Accuracy(0.5, (0.4, 0.6))
    return Tradeoff(EVIL, EVIL, [TradeoffPoint("run", EVIL, 0, EVIL, half, half)])


def texts_in(node: Any) -> Iterator[str]:
    if isinstance(node, str):
        yield node
    for inner in node.values() if isinstance(node, dict) else node if isinstance(node, list | tuple) else ():
        yield from texts_in(inner)


@pytest.mark.parametrize(
    "figure",
    [
        *(loss_surfaces([landscape()]), loss_contours([landscape()]), loss_along_the_line(line())),
        *(probing_figure(probing()), tradeoff(swept())),
    ],
    ids=["surfaces", "contours", "line", "probing", "tradeoff"],
)
def test_text_from_data_is_never_markup(figure: go.Figure) -> None:
    shown = [text for text in texts_in(figure.to_plotly_json()) if "href" in text]
    assert shown and not [text for text in shown if "<a" in text]
    assert all("&amp;amp;" in text for text in shown), "and an entity stays what it is"


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("layer 11", ["layer 11"]),
        ("attention.output.LayerNorm.weight", ["attention.output.", "LayerNorm.weight"]),
        ("a_very_long_name_without_any_dot", ["a_very_long_name_without_any_dot"]),
    ],
)
def test_long_names_of_tensors_take_two_lines(name: str, lines: list[str]) -> None:
    assert folded(name).split("<br>") == lines


def test_heat_maps_leave_room_for_two_lines() -> None:
    short = mask_heatmap([ByLayer("rose", [1, 2], [f"dense.{n}" for n in range(8)], [[0.5, 1.0]] * 8)])
    names = [f"attention.output.LayerNorm.{n}" for n in range(8)]
    long = mask_heatmap([ByLayer("rose", [1, 2], names, [[0.5, 1.0]] * 8)])
    assert long.layout.height == short.layout.height + 8 * 12
    assert list(long.data[0].y) == [name.replace("output.", "output.<br>") for name in names]
