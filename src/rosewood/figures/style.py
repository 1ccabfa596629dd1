"""How every figure looks: colours that the colour-blind tell apart and that show on light and on dark pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    """The colour of the curve at this place; after the last the palette starts anew."""
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
