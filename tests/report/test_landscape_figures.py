"""Figures of landscapes and lines say what their results say."""

from __future__ import annotations

import math
from typing import Any

import pytest

from rosewood.lab.landscape import Interpolation, Landscape, grid_coordinates
from rosewood.lab.sharpness import Eigenvalue, Sharpness
from rosewood.report.figures import loss_along_the_line, loss_contours, loss_surfaces
from rosewood.report.figures.lab import contours_apart

LOW = "most negative eigenvalue -4.5 ± 0.1"


def made_up(name: str, height: float, **changes: Any) -> Landscape:
    coordinates = grid_coordinates(5, 0.25)
    top = Eigenvalue(value=12.3, residual=0.1, products=4, converged=name == "a")
    bottom = top.model_copy(update={"value": -4.5})
    figures = {"radius": 0.25, "mean_rise": 0.5, "threshold": 0.1, "basin_area": 0.04, "basin_is_cut": name != "a"}
    settings: dict[str, Any] = {
        "source": "films",
        "data": "d",
        "examples": 8,
        "fingerprint": "f",
        "seed": 0,
        "normalisation": "filter",
        "losses": [[height * (a * a + 2 * b * b) + 0.1 for b in coordinates] for a in coordinates],
        "accuracy": 0.75,
        "sharpness": Sharpness(**figures, top_eigenvalue=top, bottom_eigenvalue=bottom),
    }
    return Landscape(name=name, coordinates=coordinates, **settings | changes)


def test_surfaces_share_their_scale_and_carry_their_sharpness() -> None:
    figure = loss_surfaces([made_up("a", 1), made_up("b", 9)])
    high = 9 * 3 * 0.0625 + 0.1
    assert (figure.layout.coloraxis.cmin, figure.layout.coloraxis.cmax) == (0.1, high)
    assert figure.layout.scene.zaxis.range == figure.layout.scene2.zaxis.range == (0.1, high)
    assert [trace.z[0][2] for trace in figure.data] == [0.1625, 9 * 0.0625 + 0.1]  # row a = -0.25, column b = 0
    captions = [note.text.split("<br>") for note in figure.layout.annotations]
    facts = "loss 0.100, accuracy 75.0%"
    assert captions == [
        ["<b>a</b>", facts, "mean rise 0.500, basin 0.040", "largest positive eigenvalue 12.3 ± 0.1", LOW],
        ["<b>b</b>", facts, "mean rise 0.500, basin ≥ 0.040", "largest positive eigenvalue 12.3 ± 0.1", LOW],
    ]


def test_contours_share_their_levels_and_wrap_after_four() -> None:
    figure = loss_contours([made_up(name, 1) for name in "abcde"])
    assert len({trace.contours.to_plotly_json()["size"] for trace in figure.data}) == 1
    assert figure.data[0].contours.size == pytest.approx(3 * 0.0625 / 20)
    assert figure.layout.yaxis5.scaleanchor == "x5", "a is as long as b"
    assert {trace.coloraxis for trace in figure.data} == {"coloraxis"}, "one bar of colours for all"


def test_contours_apart_share_their_levels_too() -> None:
    first, second = contours_apart([made_up("a<b>", 1), made_up("b", 9)])
    assert first.data[0].contours == second.data[0].contours
    assert (first.data[0].zmin, first.data[0].zmax) == (0.1, 9 * 3 * 0.0625 + 0.1)
    assert first.layout.title.text == "a&lt;b&gt;"


def test_what_is_not_finite_is_left_out_of_the_scale() -> None:
    broken = made_up("b", 1)
    losses = [[math.inf, math.nan, *row[2:]] for row in broken.losses]
    bare = Sharpness(radius=0.25, mean_rise=None, threshold=0.1, basin_area=None, basin_is_cut=None)
    figure = loss_surfaces([broken.model_copy(update={"losses": losses, "sharpness": bare})])
    assert figure.layout.coloraxis.cmax == 0.1 + 3 * 0.0625
    assert figure.layout.annotations[0].text == "<b>b</b><br>loss 0.100, accuracy 75.0%"


def test_the_line_has_two_scales_and_names_its_ends() -> None:
    line = Interpolation(
        **{"first": "rose", "second": "vanilla", "source": "films", "data": "d", "examples": 8, "fingerprint": "f"},
        **{"shares": [-0.5, 0.0, 1.0, 1.5], "losses": [3, 1, 2, 4], "accuracies": [0.5, 0.9, 0.8, 0.5]},
    )
    figure = loss_along_the_line(line)
    assert [(trace.name, trace.yaxis) for trace in figure.data] == [("loss", "y"), ("accuracy", "y2")]
    assert [(note.text, note.x) for note in figure.layout.annotations] == [("rose", 0.0), ("vanilla", 1.0)]
