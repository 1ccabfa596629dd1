"""How well each method tells texts it was not made for from those it was."""

from __future__ import annotations

import plotly.graph_objects as go

from rosewood.evaluation.method_figures import Figure
from rosewood.figures.dots import averaged, dots
from rosewood.figures.labels import label
from rosewood.figures.perspectives import Methods


def anomaly_scores(methods: Methods) -> list[str]:
    """The scores that tell anomalies, in the order of the evaluation."""
    return list(dict.fromkeys(each.score for runs in methods.values() for run in runs for each in run.anomalies))


def anomalies(methods: Methods, score: str) -> go.Figure:
    """AUROC by set, for one score; half is chance."""
    found = averaged(
        (each.name, method, Figure(each.auroc))
        for method, runs in methods.items()
        for run in runs
        for each in run.anomalies
        if each.score == score
    )
    figure = dots(found, list(methods), label(score.replace("_", " ")), "AUROC in %, 50 is chance", reference=0.5)
    # The same for every score, so that they compare.
    lowest = min([0.5, *(each.auroc for runs in methods.values() for run in runs for each in run.anomalies)])
    return figure.update_xaxes(range=[100 * lowest - 3, 103])
