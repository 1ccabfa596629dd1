"""Text from data on a figure: shown as it is, and never so long that it pushes the figure aside."""

from __future__ import annotations

from html import escape
from typing import Any

LONGEST = 32


def label(text: str, longest: int = LONGEST) -> str:
    """The text in one line; Plotly reads a little HTML, so what looks like a tag or an entity is escaped."""
    line = " ".join(text.split())
    return escape(line if len(line) <= longest else f"{line[: longest - 1]}…", quote=False)


def axis_title(text: str) -> dict[str, Any]:
    """The title of an axis, no louder than its numbers."""
    return {"text": text, "font": {"size": 12}}
