"""Which parts of the model the selection of each method let move."""

from __future__ import annotations

from rosewood.dynamics.masks import kept_by_tensor, kept_shares
from rosewood.dynamics.record import SeenMasks
from rosewood.dynamics.tables import kept_table
from rosewood.report.figures.dynamics import mask_heatmap
from rosewood.report.parts import Chart, Charts, Section, Table
from rosewood.report.subject import ReportedRun, Subject

PLACE = 82


def section(subject: Subject) -> Section | None:
    """Heat maps for the first run of each method that recorded its masks."""
    runs: dict[str, ReportedRun] = {}
    for run in subject.watched(SeenMasks):
        runs.setdefault(run.method, run)
    if not runs:
        return None
    layers = [kept_shares(run.evaluated.folder)._replace(run=run.name) for run in runs.values()]
    tensors = [kept_by_tensor(run.evaluated.folder)._replace(run=run.name) for run in runs.values()]
    words = "Heat map: kept share, from 0 to 1, over training steps"
    charts = [
        Chart(mask_heatmap(layers, "Share that may move, by layer"), f"{words}, a row for each layer."),
        Chart(mask_heatmap(tensors, "Share that may move, by kind of tensor"), f"{words}, a row for each kind."),
    ]
    tables = [
        kept_table(layers, "layer", "tensors of a layer"),
        kept_table(tensors, "kind of tensor", "layers that have such a tensor"),
    ]
    lead = "What the selection let through in each recorded step; tensors count alike, large or small."
    return Section("Selection", [Charts(charts), *(Table(table, folded=True) for table in tables)], lead)
