"""What runs recorded while they trained, as tables with a column or row for each run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rosewood.dynamics.drift import Drift
from rosewood.dynamics.inconsistency import MILESTONES, Inconsistency
from rosewood.dynamics.layers import ByLayer
from rosewood.dynamics.masks import mean_kept
from rosewood.results.grid import Grid


def drift_table(found: Sequence[Drift]) -> Grid:
    """The whole encoder and each layer, after the last recorded step."""
    steps = ", ".join(f"{each.run} after {each.steps[-1]} steps" for each in found)
    caption = f"Relative distance to the pre-trained weights; {steps}."
    return _by_layer("Drift", [(each.run, each.last()) for each in found], "{:.4f}", caption)


def kept_table(shares: Sequence[ByLayer], by: str, over: str) -> Grid:
    """A row for each layer, or whatever `by` says in words; `over` says what the mean is over besides steps."""
    columns = [(each.run, mean_kept(each)) for each in shares]
    return _by_layer(f"Share that may move, by {by}", columns, "{:.1%}", f"Mean over recorded steps and {over}.")


def inconsistency_table(found: Sequence[Inconsistency], milestones: Sequence[int] = MILESTONES) -> Grid:
    """The first N steps of each run, for some N, and all of them."""
    tables = [each.at(milestones) for each in found]
    steps = sorted({step for table in tables for step in table})
    rows = [
        [each.run, *(f"{table[step]:.2%}" if step in table else "" for step in steps)]
        for each, table in zip(found, tables, strict=True)
    ]
    caption = "Predictions whose class differs between two dropout passes, over the first N steps."
    return Grid("Dropout inconsistency", ["run", *map(str, steps)], rows, caption)


def _by_layer(title: str, columns: Sequence[tuple[str, Mapping[str, float]]], form: str, caption: str) -> Grid:
    layers = list(dict.fromkeys(layer for _, column in columns for layer in column))
    rows = [
        [layer, *(form.format(column[layer]) if layer in column else "" for _, column in columns)] for layer in layers
    ]
    return Grid(title, ["", *(run for run, _ in columns)], rows, caption)
