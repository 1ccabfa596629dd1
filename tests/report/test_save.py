"""Figures on disk: every format, the same bytes each time, and nothing left out in silence."""

import json
import re
import shutil
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import plotly.graph_objects as go
import pytest
from plotly.subplots import make_subplots

from rosewood.errors import DataError
from rosewood.report.figures.style import PALETTE, SEQUENTIAL, save, styled


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


@pytest.mark.parametrize("suffix", ["html", "json"])
def test_every_format_is_written_whole_and_the_same_each_time(suffix: str, tmp_path: Path) -> None:
    first = save(everything(), tmp_path / f"first.{suffix}").read_bytes()
    assert save(everything(), tmp_path / "made" / f"second.{suffix}").read_bytes() == first
    assert first.startswith({"html": b"<!doctype html>", "json": b"{"}[suffix])
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


@pytest.mark.slow  # it starts a browser
def test_pictures_say_what_the_figure_says(tmp_path: Path) -> None:
    pytest.importorskip("kaleido")
    if not shutil.which("chromium"):
        pytest.skip("there is no browser")
    svg = save(everything(), tmp_path / "figure.svg").read_text(encoding="utf-8")
    texts = {"".join(node.itertext()).strip() for node in ElementTree.fromstring(svg).iter()}
    assert {"lines", "points", "two scales", "heat", "contour", "squares", "band", "loss", "accuracy"} <= texts


def test_a_picture_that_cannot_be_drawn_says_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> bytes:
        raise RuntimeError("Kaleido requires Google Chrome to be installed.\nMore lines.")

    monkeypatch.setattr(go.Figure, "to_image", fails)
    with pytest.raises(DataError, match=r"a \.png: Kaleido requires .*rosewood\[pictures\]'\. Or save as \.html"):
        save(go.Figure(), tmp_path / "figure.png")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("figure", "path", "message"),
    [
        (go.Figure(), "figure.gif", r"end in one of \.html, \.json, \.png, \.svg, \.pdf; got 'figure\.gif'"),
        (go.Figure(), "figure", "got 'figure'"),
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
