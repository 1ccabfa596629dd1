"""Plotly's values as Matplotlib takes them."""

from __future__ import annotations

import html
import re
from typing import Any

import numpy as np

INK, FAINT = "#333333", "#dddddd"  # paper is white, so print may be darker than figures on pages of unknown colour
DASHES = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-.", "longdash": (0, (8, 3)), "longdashdot": "-."}
SYMBOLS = {
    **{"circle": "o", "square": "s", "diamond": "D", "cross": "P", "x": "X", "star": "*"},
    **{"triangle-up": "^", "triangle-down": "v", "triangle-left": "<", "triangle-right": ">"},
}


def numbers(values: Any) -> np.ndarray:
    """Values as floats; what is missing becomes NaN."""
    return np.array(values, dtype=float)


def places(given: Any, count: int) -> tuple[np.ndarray, list[str]]:
    """Coordinates along an axis, and the names to write there if it has names instead of numbers."""
    if given is None:
        return np.arange(count, dtype=float), []
    if any(isinstance(one, str) for one in given):
        return np.arange(count, dtype=float), [plain(one) for one in given]
    return numbers(given), []


def spreads(error: Any) -> np.ndarray | None:
    """Lengths of error bars below and above, or none."""
    if error.array is None or error.visible is False:
        return None
    above = numbers(error.array)
    return np.stack([above if error.arrayminus is None else numbers(error.arrayminus), above])


def paints(colour: Any) -> Any:
    """A colour as Matplotlib reads it; a list becomes a list."""
    if not isinstance(colour, str):
        return [paints(one) for one in colour]
    found = re.fullmatch(r"rgba?\(([^)]*)\)", colour.strip())
    if not found:
        return colour
    red, green, blue, *alpha = (float(part) for part in found[1].split(","))
    return (red / 255, green / 255, blue / 255, *alpha)


def plain(text: Any) -> str:
    """Plotly's little HTML as plain text."""
    broken = re.sub(r"<br\s*/?>", "\n", "" if text is None else str(text))
    return html.unescape(re.sub(r"</?[a-z][^>]*>", "", broken))
