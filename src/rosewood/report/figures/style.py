"""How every figure looks (colours that all readers can tell apart, safe labels), and how it is saved."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape, unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rosewood.errors import DataError
from rosewood.results.files import write_bytes_whole

if TYPE_CHECKING:
    import plotly.graph_objects as go


# Each has a contrast of at least 3 against white and against #111111 (WCAG's bound for graphics), and any two differ by
# at least 25 in CIELAB to normal, protan and deutan eyes.
PALETTE = ("#0072b2", "#d55e00", "#42a584", "#8c5438", "#4a6572", "#0050f2")
# Lightness grows steadily, so it also reads in grey and to all eyes.
SEQUENTIAL = "cividis"
DIVERGING = "rdbu"
TEXT = "#767676"  # a contrast of 4.5 against white and 4.2 against #111111: the middle that serves both
GRID = "rgba(128, 128, 128, 0.25)"
FONT = "system-ui, sans-serif"


def colour(place: int) -> str:
    """The colour of the curve at this place; after the last the palette starts again."""
    return PALETTE[place % len(PALETTE)]


def styled(figure: go.Figure, title: str) -> go.Figure:
    """The figure in Rosewood's look, on the background of whatever page shows it."""
    figure.update_layout(
        template="none",
        title={"text": title},
        colorway=PALETTE,
        font={"color": TEXT, "family": FONT, "size": 13},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        margin={"l": 70, "r": 30, "t": 80, "b": 60},
    )
    axis = {"gridcolor": GRID, "linecolor": TEXT, "zerolinecolor": GRID}
    figure.update_xaxes(**axis)
    figure.update_yaxes(**axis)
    figure.update_scenes(
        {name: {"gridcolor": GRID, "backgroundcolor": "rgba(0,0,0,0)"} for name in ("xaxis", "yaxis", "zaxis")}
    )
    return figure


SIGNS = (("circle", "solid"), ("diamond", "dash"), ("square", "dot"), ("triangle-up", "dashdot"))
POINTS = 200


class Mark(NamedTuple):
    """The look of one series: its colour, the sign of its points and the dashes of its lines."""

    colour: str
    symbol: str
    dash: str

    def curve(self) -> dict[str, Any]:
        """What Plotly needs to draw a line with points in this look."""
        return {
            "mode": "lines+markers",
            "line": {"color": self.colour, "dash": self.dash, "width": 2},
            "marker": {"color": self.colour, "symbol": self.symbol, "size": 6},
            "hoverinfo": "text",
        }


def mark(place: int) -> Mark:
    """The look of the series at this place; where colours start again, signs and dashes change."""
    return Mark(colour(place), *SIGNS[place // len(PALETTE) % len(SIGNS)])


def drawn(steps: Sequence[int]) -> slice:
    """Which of very many steps to draw: at most 200 at equal distances, the last among them."""
    stride = math.ceil(len(steps) / POINTS)
    return slice((len(steps) - 1) % stride, None, stride)


LONGEST = 32


def label(text: str, longest: int = LONGEST) -> str:
    """The text in one line; Plotly reads a little HTML, so what looks like a tag or an entity is escaped."""
    line = " ".join(text.split())
    return escape(line if len(line) <= longest else f"{line[: longest - 1]}…", quote=False)


def folded(name: str, longest: int = 20) -> str:
    """The label of a dotted name, in two lines if it is long: broken after the dot nearest to its middle."""
    text = label(name, longest=2 * longest)
    dots = [place for place, sign in enumerate(text) if sign == "."]
    if len(text) <= longest or not dots:
        return text
    end = min(dots, key=lambda place: abs(place + 1 - len(text) / 2)) + 1
    return f"{text[:end]}<br>{text[end:]}"


def small_chart(figure: go.Figure, title: str, x: str, y: str) -> go.Figure:
    """The figure as one of several small ones, with the titles of its axes."""
    styled(figure, title).update_layout(showlegend=True, height=300)
    figure.update_xaxes(title=axis_title(x), zeroline=False)
    return figure.update_yaxes(title=axis_title(y), automargin=True, zeroline=False)


def axis_title(text: str) -> dict[str, Any]:
    """The title of an axis, no louder than its numbers."""
    return {"text": text, "font": {"size": 12}}


PICTURES = ("png", "svg", "pdf")
SUFFIXES = ("html", "json", *PICTURES)

CONFIG = {"displaylogo": False, "toImageButtonOptions": {"format": "svg"}}
# The page takes the reader's light or dark background; the figure itself has none.
PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="color-scheme" content="light dark"><title>{title}</title></head>
<body>
{figure}
</body>
</html>
"""


def save(figure: go.Figure, path: Path | str) -> Path:
    """Write a figure in the format that the path's suffix names; the same figure gives the same bytes.

    Args:
        figure: a Plotly figure.
        path: the file: .html, .json, .png, .svg or .pdf.

    Returns:
        The path.

    Raises:
        DataError: the suffix is another one, the file cannot be written, or a picture cannot be drawn.

    Example:
        >>> from plotly.graph_objects import Figure
        >>> save(Figure(), "empty.json")
        PosixPath('empty.json')
    """
    path = Path(path)
    content = _content(figure, check_suffix(path))
    try:
        write_bytes_whole(path, content)
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror}. Check the folder and the space left.") from error
    return path


def _content(figure: go.Figure, suffix: str) -> bytes:
    if suffix == "html":
        return page(figure).encode()
    if suffix == "json":
        return f"{figure.to_json()}\n".encode()
    try:
        return bytes(figure.to_image(suffix, scale=2))
    except Exception as error:  # Kaleido, and the browser that it drives, say whatever comes up
        raise DataError(
            f"cannot draw a .{suffix}: {' '.join(str(error).split())[:200]}. Pictures need Kaleido and Chrome: "
            "pip install 'rosewood[pictures]'. Or save as .html, whose camera button saves the picture."
        ) from error


def check_suffix(path: Path) -> str:
    """The format a path asks for, refused if it is none that figures have."""
    suffix = path.suffix.lower().removeprefix(".")
    if suffix not in SUFFIXES:
        known = ", ".join(f".{name}" for name in SUFFIXES)
        raise DataError(f"Expected a figure's file to end in one of {known}; got {path.name!r}. Rename it.")
    return suffix


def page(figure: go.Figure) -> str:
    """A page that needs no network: Plotly's script is inside."""
    inner = figure.to_html(full_html=False, include_plotlyjs=True, div_id="figure", config=CONFIG)
    return PAGE.format(title=escape(unescape(figure.layout.title.text or "Figure")), figure=inner)
