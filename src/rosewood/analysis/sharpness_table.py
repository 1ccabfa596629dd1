"""How flat the loss is around models, as a table."""

from __future__ import annotations

from collections.abc import Sequence

from rosewood.analysis.landscape import Landscape
from rosewood.evaluation.layout import Grid


def sharpness_table(landscapes: Sequence[Landscape]) -> Grid:
    """One row a model; all were measured alike."""
    first = landscapes[0]
    headings = (f"mean rise\nat {first.sharpness.radius:g}", f"basin\nbelow +{first.sharpness.threshold:g}")
    rows = [[each.name, f"{each.loss:.4f}", f"{each.accuracy:.1%}", *_figures(each)] for each in landscapes]
    notes = " ".join(f"{each.name}: {each.note}." for each in landscapes if each.note)
    header = ["model", "loss", "accuracy", *headings, "top\neigenvalue"]
    return Grid(f"Sharpness: {first.source}", header, rows, notes)


def _figures(landscape: Landscape) -> tuple[str, str, str]:
    found = landscape.sharpness
    rise = "-" if found.mean_rise is None else f"{found.mean_rise:.4f}"
    area = "-" if found.basin_area is None else f"{'≥ ' if found.basin_is_cut else ''}{found.basin_area:.4f}"
    top = found.top_eigenvalue
    return rise, area, "-" if top is None else f"{top.value:.4g} ± {top.residual:.2g}"
