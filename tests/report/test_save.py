"""Figures on disk: every format, the same bytes each time, and nothing left out in silence."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import plotly.graph_objects as go
import pytest
from plotly.subplots import make_subplots

from rosewood.errors import DataError
from rosewood.report.figures.picture import drawn
from rosewood.report.figures.save import SUFFIXES, save
from rosewood.report.figures.style import PALETTE, SEQUENTIAL, styled


def everything() -> go.Figure:
    """Each trace type, on flat panels and in a scene."""
    specs = [[{}, {}, {"secondary_y": True}], [{}, {}, {"type": "scene"}]]
    titles = ["lines", "points", "two scales", "heat", "contour", "surface"]
    figure = make_subplots(2, 3, specs=specs, subplot_titles=titles)
    error = {"type": "data", "array": [0.1, 0.2, 0.3], "arrayminus": [0.3, 0.2, 0.1]}
    figure.add_scatter(x=[1, 2, 3], y=[1, 4, 9], error_y=error, mode="lines+markers", name="squares", row=1, col=1)
    figure.add_scatter(x=[1, 3, 3, 1], y=[0, 0, 2, 2], fill="toself", name="band", row=1, col=1)
    figure.add_scatter(x=[1, 2], y=[1, 2], mode="markers", name="first", row=1, col=2)
    figure.add_scatter(x=[0, 1], y=[0, 1], name="loss", row=1, col=3)
    figure.add_scatter(x=[0, 1], y=[90, 80], name="accuracy", row=1, col=3, secondary_y=True)
    z = np.add.outer(np.arange(4.0), np.arange(5.0) ** 2)
    figure.add_heatmap(z=z, x=list("vwxyz"), y=list("abcd"), showscale=False, row=2, col=1)
    figure.add_contour(z=z, colorscale=SEQUENTIAL, showscale=False, row=2, col=2)
    figure.add_hline(y=2, line_dash="dash", row=1, col=1)
    figure.add_surface(z=z, colorscale=SEQUENTIAL, showscale=False, row=2, col=3)
    figure.update_layout(width=1000, height=700)
    return styled(figure, "A <b>title</b> with $ and < & >")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_format_is_written_whole_and_the_same_each_time(suffix: str, tmp_path: Path) -> None:
    first = save(everything(), tmp_path / f"first.{suffix}").read_bytes()
    assert save(everything(), tmp_path / "made" / f"second.{suffix}").read_bytes() == first
    starts = {"html": b"<!doctype html>", "json": b"{", "png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}
    assert first.startswith(starts[suffix])
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"first.{suffix}", "made"]


def test_the_page_needs_no_network_and_escapes_its_title(tmp_path: Path) -> None:
    page = save(everything(), tmp_path / "figure.html").read_text(encoding="utf-8")
    assert "<title>A &lt;b&gt;title&lt;/b&gt; with $ and &lt; &amp; &gt;</title>" in page
    assert not re.search(r"<(script|link)[^>]*(src|href)=", page)
    escaped = styled(go.Figure(), "a &lt;b&gt;")
    assert "<title>a &lt;b&gt;</title>" in save(escaped, tmp_path / "escaped.html").read_text(encoding="utf-8")


def test_json_reads_back_as_the_same_figure(tmp_path: Path) -> None:
    import plotly.io

    figure = everything()
    text = save(figure, tmp_path / "figure.json").read_text(encoding="utf-8")
    assert json.loads(plotly.io.from_json(text).to_json()) == json.loads(figure.to_json())
    assert len(json.loads(text)["data"]) == len(figure.data)


def test_pictures_say_what_the_figure_says(tmp_path: Path) -> None:
    svg = save(everything(), tmp_path / "figure.svg").read_text(encoding="utf-8")
    texts = {
        "".join(node.itertext()).strip() for node in ElementTree.fromstring(svg).iter() if node.tag.endswith("text")
    }
    assert {"lines", "points", "two scales", "heat", "contour", "surface"} <= texts
    assert {"squares", "band", "first", "loss", "accuracy"} <= texts  # the legend
    assert "A title with $ and < & >" in texts


def test_lines_and_error_bars_stand_where_the_numbers_are() -> None:
    drawing = drawn(everything())
    line, _, (segments,) = drawing.panels["x", "y"].containers[0].lines
    assert line.get_xydata().tolist() == [[1, 1], [2, 4], [3, 9]]
    assert np.allclose([segment[:, 1] for segment in segments.get_segments()], [[0.7, 1.1], [3.8, 4.2], [8.9, 9.3]])
    assert len(drawing.figure.axes) == 7  # the accuracy has axes of its own


def test_surfaces_share_the_scale_of_a_colour_axis() -> None:
    figure = go.Figure([go.Heatmap(z=[[0, 1]], coloraxis="coloraxis")])
    figure.update_layout(coloraxis={"colorscale": SEQUENTIAL, "cmin": -1, "cmax": 7})
    drawing = drawn(figure)
    assert drawing.panels["x", "y"].collections[0].get_clim() == (-1, 7)


def test_axes_keep_to_what_the_figure_asks_of_them() -> None:
    figure = go.Figure(go.Scatter(x=[1, 2], y=[3, 4]))
    figure.update_xaxes(showgrid=False, showticklabels=False).update_yaxes(rangemode="tozero", scaleanchor="x")
    axes = drawn(figure).panels["x", "y"]
    assert axes.get_ylim()[0] == 0 and axes.get_ylim()[1] >= 4
    assert axes.get_aspect() == 1
    assert not any(line.get_visible() for line in axes.get_xgridlines())
    assert any(line.get_visible() for line in axes.get_ygridlines())
    below = drawn(go.Figure(go.Scatter(y=[-2, -1])).update_yaxes(rangemode="tozero")).panels["x", "y"]
    assert below.get_ylim()[0] <= -2 and below.get_ylim()[1] == 0


def test_cells_of_a_heat_map_reach_half_way_to_the_next() -> None:
    figure = go.Figure(go.Heatmap(x=[1, 2, 4], y=[7], z=[[1, 2, 3]]))
    (mesh,) = drawn(figure).panels["x", "y"].collections
    corners = mesh.get_coordinates()
    assert corners[0, :, 0].tolist() == [0.5, 1.5, 3, 5]
    assert corners[:, 0, 1].tolist() == [6.5, 7.5], "a single row can be seen"


def test_points_have_the_colours_of_the_whole_scale() -> None:
    look = {"color": [3, 4], "colorscale": "hsv", "cmin": 0, "cmax": 10}
    points = drawn(go.Figure(go.Scatter(x=[1, 2], y=[3, 4], mode="markers", marker=look))).panels["x", "y"]
    assert points.collections[0].get_clim() == (0, 10)


@pytest.mark.parametrize(
    ("figure", "path", "message"),
    [
        (go.Figure(), "figure.gif", r"end in one of \.html, \.json, \.png, \.svg, \.pdf; got 'figure\.gif'"),
        (go.Figure(), "figure", "got 'figure'"),
        (go.Figure(go.Violin(y=[1, 2])), "a.png", "scatter, heatmap, contour, surface; got 'violin'"),
        (go.Figure(go.Scatter(y=[1, 2], fill="tonexty")), "a.png", "fill toself or tozeroy; got 'tonexty'"),
        (go.Figure(layout={"shapes": [{"type": "circle"}]}), "a.pdf", "shapes of type line; got 'circle'"),
        (go.Figure(go.Bar(y=[1])), "a.svg", "scatter, heatmap, contour, surface; got 'bar'"),
    ],
)
def test_what_cannot_be_drawn_is_refused_by_name(figure: go.Figure, path: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        save(figure, tmp_path / path)
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written_is_said_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"cannot write .*a\.json: .*\. Check the folder and the space left\."):
        save(go.Figure(), tmp_path / "file" / "a.json")


def luminance(colour: str) -> float:
    parts = np.array([int(colour[start : start + 2], 16) for start in (1, 3, 5)]) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


@pytest.mark.parametrize("colour", PALETTE)
@pytest.mark.parametrize("page", ["#ffffff", "#111111"])
def test_colours_show_on_light_and_on_dark_pages(colour: str, page: str) -> None:
    low, high = sorted([luminance(colour), luminance(page)])
    assert (high + 0.05) / (low + 0.05) >= 3
