"""Figures on disk: .html and .json for screens and programs, .png, .svg and .pdf for papers."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from rosewood.durable import write_bytes_whole, write_whole
from rosewood.errors import DataError

if TYPE_CHECKING:
    import plotly.graph_objects as go

PICTURES = ("png", "svg", "pdf")
SUFFIXES = ("html", "json", *PICTURES)

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
    """Write a figure in the format that the path's suffix names; the same figure gives the same bytes."""
    path = Path(path)
    suffix = check_suffix(path)
    if suffix == "html":
        write_whole(path, page(figure))
    elif suffix == "json":
        write_whole(path, figure.to_json() + "\n")
    else:
        from rosewood.figures.picture import picture

        write_bytes_whole(path, picture(figure, suffix))
    return path


def check_suffix(path: Path) -> str:
    """The format a path asks for, refused if it is none that figures have."""
    suffix = path.suffix.lower().removeprefix(".")
    if suffix not in SUFFIXES:
        known = ", ".join(f".{name}" for name in SUFFIXES)
        raise DataError(f"Expected a figure's file to end in one of {known}; got {path.name!r}. Rename it.")
    return suffix


def page(figure: go.Figure) -> str:
    """A page that needs no network: Plotly's script is inside."""
    inner = figure.to_html(full_html=False, include_plotlyjs=True, div_id="figure", config={"displaylogo": False})
    return PAGE.format(title=escape(figure.layout.title.text or "Figure"), figure=inner)
