"""Text from data on a figure: shown as it is, and never so long that it pushes the figure aside."""

from __future__ import annotations

from html import escape
from typing import Any

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


def axis_title(text: str) -> dict[str, Any]:
    """The title of an axis, no louder than its numbers."""
    return {"text": text, "font": {"size": 12}}
