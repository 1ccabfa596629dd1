"""Dots with intervals: where they stand, how far the whiskers reach, and that text stays text."""

import pytest

from rosewood.comparison.significance import Figure
from rosewood.comparison.statistics import t_interval
from rosewood.report.figures.evaluation import Dot, averaged, dots
from rosewood.report.figures.style import PALETTE, label, mark


def test_dots_stand_in_their_rows_with_whiskers_within_what_a_share_can_be() -> None:
    found = [
        Dot("clean", "a", 0.9, (0.8, 1.3)),
        Dot("clean", "b", 0.5, (-0.2, 0.6)),
        Dot("noise", "b", 0.4, None),
    ]
    figure = dots(found, ["a", "none", "b"], "Title", "accuracy")
    first, second = figure.data
    assert (list(first.x), list(second.x)) == ([90.0], [50.0, 40.0])
    assert [round(place) for place in second.y] == [0, 1] and first.y[0] < second.y[0]
    assert first.error_x.array == pytest.approx([10]) and first.error_x.arrayminus == pytest.approx([10])
    assert second.error_x.array == pytest.approx([10, 0]) and second.error_x.arrayminus == pytest.approx([50, 0])
    assert list(figure.layout.yaxis.ticktext) == ["clean", "noise"]
    assert first.marker.color == PALETTE[0] and second.marker.color == PALETTE[2], "the place among all series decides"


def test_runs_of_a_series_become_one_dot() -> None:
    values = [0.7, 0.8, 0.75]
    (several, single) = averaged(
        [*(("row", "a", Figure(value)) for value in values), ("row", "b", Figure(0.5, (0, 1)))]
    )
    assert several == Dot("row", "a", pytest.approx(0.75), pytest.approx(t_interval(values)))
    assert single == Dot("row", "b", 0.5, (0, 1))


def test_what_looks_like_markup_is_shown_as_it_is_and_long_names_are_cut() -> None:
    figure = dots([Dot("<b>row</b> &amp;", "<i>s</i>", 0.5)], ["<i>s</i>"], "Title", "axis")
    assert figure.layout.yaxis.ticktext == ("&lt;b&gt;row&lt;/b&gt; &amp;amp;",)
    assert figure.data[0].name == "&lt;i&gt;s&lt;/i&gt;"
    assert "<i>" not in figure.data[0].hovertext[0]
    assert label("x" * 100) == "x" * 31 + "…" and label(" a\n b ") == "a b"


def test_after_the_last_colour_signs_and_dashes_change() -> None:
    looks = [mark(place) for place in range(4 * len(PALETTE))]
    assert len(set(looks)) == len(looks)
