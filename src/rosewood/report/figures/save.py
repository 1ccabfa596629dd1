"""Figures on disk: .html and .json for screens and programs; .png, .svg and .pdf for papers, drawn by Kaleido."""

from __future__ import annotations

from html import escape, unescape
from pathlib import Path
from typing import TYPE_CHECKING

from rosewood.errors import DataError
from rosewood.results.durable import write_bytes_whole

if TYPE_CHECKING:
    import plotly.graph_objects as go

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
    """Write a figure in the format that the path's suffix names; the same figure gives the same bytes."""
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
