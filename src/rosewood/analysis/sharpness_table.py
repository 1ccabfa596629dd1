"""How flat the loss is around models, as a table."""

from __future__ import annotations

from collections.abc import Sequence

from rosewood.analysis.landscape import Landscape
from rosewood.analysis.sharpness import Eigenvalue
from rosewood.evaluation.layout import Grid

EXTREMES = ("largest\npositive\neigenvalue", "most\nnegative\neigenvalue")


def sharpness_table(landscapes: Sequence[Landscape]) -> Grid:
    """One row a model; all were measured alike."""
    first = landscapes[0]
    headings = (f"mean rise\nat {first.sharpness.radius:g}", f"basin\nbelow +{first.sharpness.threshold:g}")
    rows = [[each.name, f"{each.loss:.4f}", f"{each.accuracy:.1%}", *_figures(each)] for each in landscapes]
    notes = " ".join(f"{each.name}: {each.note}." for each in landscapes if each.note)
    header = ["model", "loss", "accuracy", *headings, *EXTREMES]
    return Grid(f"Sharpness: {first.source}", header, rows, notes)


def _figures(landscape: Landscape) -> tuple[str, str, str, str]:
    found = landscape.sharpness
    rise = "-" if found.mean_rise is None else f"{found.mean_rise:.4f}"
    area = "-" if found.basin_area is None else f"{'≥ ' if found.basin_is_cut else ''}{found.basin_area:.4f}"
    return rise, area, eigenvalue(found.top_eigenvalue, 1), eigenvalue(found.bottom_eigenvalue, -1)


def eigenvalue(found: Eigenvalue | None, sign: int) -> str:
    """An eigenvalue of this sign; at the end of few steps there may be none."""
    if found is None:
        return "-"
    return f"{found.value:.4g} ± {found.residual:.2g}" if sign * found.value > 0 else "none found"
