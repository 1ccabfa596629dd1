"""The sections of a report, what they are made of, and how they are found.

A section is a function marked with `@section`, in any file of this folder. It takes the subject of the report and
returns a `Section`, or None where the runs have no such results. A file is found without touching a list. Installed
packages may have such files too: see `rosewood.config.registry`. Each kind of part is drawn by the template that it
names.
"""

from __future__ import annotations

import html
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

import plotly.graph_objects as go

from rosewood.config.registry import modules_in
from rosewood.report.figures.style import Mark
from rosewood.report.subject import Subject
from rosewood.results.grid import Grid


@dataclass(frozen=True)
class Part:
    """Something that a section shows."""

    template: ClassVar[str]


@dataclass(frozen=True)
class Table(Part):
    """A table; a folded one opens when it is asked for, a titled one has its title above."""

    template = "parts/table.html"

    grid: Grid
    folded: bool = False
    titled: bool = False


@dataclass(frozen=True)
class Chart:
    """A figure, and in words what it shows, for those who cannot see it."""

    figure: go.Figure
    description: str

    @property
    def title(self) -> str:
        """The figure's title; the page writes it above, where it wraps."""
        return html.unescape(self.figure.layout.title.text or "")

    @property
    def json(self) -> str:
        """The figure for the page: without title and legend, which the page has, and safe within a script element."""
        shown = go.Figure(self.figure)
        top = 32 if shown.layout.annotations else 8  # the titles of panels
        shown.update_layout(title=None, showlegend=False, width=None, margin={"l": 8, "r": 12, "t": top, "b": 40})
        shown.update_yaxes(automargin=True)
        text: str = shown.to_json()
        for sign in "<>&":  # they occur in strings only, where JSON may escape them
            text = text.replace(sign, f"\\u{ord(sign):04x}")
        return text


@dataclass(frozen=True)
class Charts(Part):
    """Figures one below the other, or side by side as far as the page is wide enough."""

    template = "parts/charts.html"

    charts: Sequence[Chart]
    small: bool = False


@dataclass(frozen=True)
class Listing(Part):
    """A text that is shown letter by letter: a file, or commands."""

    template = "parts/listing.html"

    title: str
    text: str
    folded: bool = True


class Piece(NamedTuple):
    """A stretch of a text before and after an attack; equal if it was left alone."""

    before: str
    after: str


@dataclass(frozen=True)
class Version:
    """What an attack made of a text for one run."""

    run: str
    mark: Mark
    outcome: str
    pieces: Sequence[Piece]


@dataclass(frozen=True)
class AttackedText:
    """One text of the data, and how each run fared with it."""

    title: str
    others: Mapping[str, str]
    """Fields that were not attacked."""
    versions: Sequence[Version]


@dataclass(frozen=True)
class AttackedTexts(Part):
    """Some attacked texts, and a sentence on those that are not shown."""

    template = "parts/attacked_texts.html"

    title: str
    texts: Sequence[AttackedText]
    more: str


@dataclass(frozen=True)
class Section:
    """A heading and its content."""

    title: str
    parts: Sequence[Part]
    lead: str = ""

    @property
    def needs_legend(self) -> bool:
        """Whether some chart tells methods apart by their looks; heat maps and contours do not."""
        charts = [chart for part in self.parts if isinstance(part, Charts) for chart in part.charts]
        return any(trace.type == "scatter" for chart in charts for trace in chart.figure.data)


Written = Callable[[Subject], Section | None]
_PLACE = "place_in_report"


def section(place: int) -> Callable[[Written], Written]:
    """Mark a function as a section of the report; sections follow each other by their places.

    Args:
        place: where the section comes: the comparison is at 10, the commands are at 100.

    Returns:
        The decorator, which leaves the function as it is.
    """

    def mark(function: Written) -> Written:
        setattr(function, _PLACE, place)
        return function

    return mark


def sections(subject: Subject) -> Iterator[Section]:
    """All sections that have something to show, in their order."""
    for write in sorted(_written(), key=lambda each: getattr(each, _PLACE)):
        found = write(subject)
        if found is not None:
            yield found


def _written() -> Iterator[Written]:
    for each in modules_in(__name__, Path(__file__).parent).values():
        module = importlib.import_module(each)
        yield from (value for value in vars(module).values() if hasattr(value, _PLACE))
