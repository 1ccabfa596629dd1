"""The section on certificates: certified accuracy by the number of edits, as curves and as a table."""

from __future__ import annotations

from collections.abc import Mapping

import plotly.graph_objects as go

from rosewood.comparison.attacks import EDITS, certificate_grid, certificate_title, kept_certificates
from rosewood.report.figures.style import axis_title, label, mark, styled
from rosewood.report.parts import Chart, Charts, Section, Table
from rosewood.report.sections import section
from rosewood.report.subject import Subject
from rosewood.results.defence import Certificate


@section(place=75)
def certificates_section(subject: Subject) -> Section | None:
    """A chart for each kind of edit, and the table below."""
    found = {
        f"{run.name}, {certificate_title(each)}": each
        for run in subject.runs
        for each in kept_certificates(run.evaluated.folder)
    }
    if not found:
        return None
    kinds = dict.fromkeys(kind for each in found.values() for kind in each.kinds)
    charts = [
        Chart(certified_curves(found, kind), f"Curves: certified accuracy by the number of {EDITS[kind]}.")
        for kind in kinds
    ]
    return Section(
        "Certificates",
        [Charts(charts, small=True), Table(certificate_grid(found))],
        "How many words may change before the answer of the smoothed model can; no attack within that succeeds.",
    )


def certified_curves(certificates: Mapping[str, Certificate], kind: str) -> go.Figure:
    """One curve a certificate: the share of texts that are right and stay so, by the number of edits."""
    figure = go.Figure()
    for place, (name, each) in enumerate(certificates.items()):
        if kind not in each.kinds:
            continue
        radii = list(range(each.largest_radius(kind) + 2))
        look = mark(place)
        accuracies = [100 * each.certified_accuracy(kind, radius) for radius in radii]
        figure.add_scatter(
            x=radii,
            y=accuracies,
            mode="lines+markers",
            name=label(name),
            line={"color": look.colour, "dash": look.dash, "width": 2, "shape": "hv"},
            marker={"color": look.colour, "symbol": look.symbol, "size": 6},
            hovertext=[f"{label(name)}, {r} edits: {value:.1f} %" for r, value in zip(radii, accuracies, strict=True)],
            hoverinfo="text",
        )
    styled(figure, label(EDITS[kind], longest=60))
    figure.update_layout(showlegend=True, height=300)
    figure.update_xaxes(title=axis_title("edits"), zeroline=False)
    figure.update_yaxes(title=axis_title("certified accuracy in %"), range=[0, 101], automargin=True, zeroline=False)
    return figure
