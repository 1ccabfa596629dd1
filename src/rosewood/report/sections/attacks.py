"""What an attacker can do to a model, in figures and in texts, and what is certified against it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from rosewood.attacks.runner.constraints import verdicts
from rosewood.attacks.runner.report import CAPTION, COLUMNS, answers_of, filter_caption, summary_cells
from rosewood.comparison.attack_tables import (
    EDITS,
    Attacked,
    attacked,
    certificate_grid,
    certificate_title,
    kept_certificates,
    transfer_grids,
)
from rosewood.comparison.runs import KeptAttack, kept_replays
from rosewood.config.attack_options import MeaningFilter
from rosewood.report.figures.evaluation import robust_accuracy
from rosewood.report.figures.style import label, mark, small_chart
from rosewood.report.sections import (
    AttackedText,
    AttackedTexts,
    Chart,
    Charts,
    Part,
    Piece,
    Section,
    Table,
    Version,
    section,
)
from rosewood.report.subject import ReportedRun, Subject
from rosewood.results import AttackedExample
from rosewood.results.attack import Certificate
from rosewood.results.evaluation import GUESSING_NOTE, marked
from rosewood.results.grid import Grid

TEXTS = 5
"""How many texts of an attack are shown."""
CONTEXT = 160
"""Letters around a change that a long text keeps."""


class Finding(NamedTuple):
    """What an attack did to one example of a run."""

    run: ReportedRun
    example: AttackedExample
    conditions: MeaningFilter


@section(place=70)
def attacks_section(subject: Subject) -> Section | None:
    """The accuracy under every attack, the figures, and some attacked texts."""
    found = attacked([run.evaluated for run in subject.runs])
    table = attack_table(found, subject.runs)
    if table is None:
        return None
    figure = robust_accuracy(subject.attacked, list(subject.methods))
    parts: list[Part] = []
    if figure is not None:
        parts.append(Charts([Chart(figure, "Dots with 95 % intervals: accuracy before and under each attack.")]))
    parts.append(Table(table))
    parts += _texts(subject, found)
    return Section(
        "Attacks",
        parts,
        "Only words or letters change; whether the meaning stays is for a reader to judge. “Filtered” counts "
        "only edits that pass automatic checks of meaning; the search did not aim at these, so there may be more.",
    )


def attack_table(found: Sequence[Attacked], runs: Sequence[ReportedRun]) -> Grid | None:
    """The figures of all attacks on some runs; nothing if there were none."""
    names = {run.evaluated.folder: run.name for run in runs}
    rows = [[each.title, marked(names[each.run.folder], each.guessing), *summary_cells(each.summary)] for each in found]
    guessing = [GUESSING_NOTE] if any(each.guessing for each in found) else []
    apart = dict.fromkeys(f"{each.title}: {each.apart}." for each in found if each.apart)
    caption = [CAPTION, *filter_caption(each.summary for each in found), *guessing, *apart]
    return Grid("Attacks", ["attack", "run", *COLUMNS], rows, " ".join(caption), texts=2) if rows else None


def _texts(subject: Subject, found: Sequence[Attacked]) -> Iterator[AttackedTexts]:
    """The same texts under the same attack, for the first run of each method that met it."""
    reported = {run.evaluated.folder: run for run in subject.runs}
    for title in dict.fromkeys(each.title for each in found):
        met: dict[str, tuple[ReportedRun, KeptAttack]] = {}
        for each in found:
            if each.title == title and each.kept is not None:
                met.setdefault(each.run.method, (reported[each.run.folder], each.kept))
        pairs = list(met.values())
        broken = sorted({each.row for _, kept in pairs for each in kept.examples() if each.status == "broken"})
        by_row: dict[int, list[Finding]] = {row: [] for row in broken[:TEXTS]}
        for run, kept in pairs:
            for example in kept.examples():
                if example.row in by_row:
                    by_row[example.row].append(Finding(run, example, kept.report.meaning_filter))
        if broken:
            shown = [_text(subject, findings, pairs[0][1].report.field) for findings in by_row.values()]
            yield AttackedTexts(f"Texts that broke under {title}", shown, _more(len(broken) - len(shown), pairs))


def _more(left: int, met: Sequence[tuple[ReportedRun, KeptAttack]]) -> str:
    if left <= 0:
        return ""
    folders = ", ".join(str(attack.folder) for _, attack in met[:3]) + (", …" if len(met) > 3 else "")
    return f"{left} more {'text was' if left == 1 else 'texts were'} broken; all are in examples.jsonl of {folders}."


def _text(subject: Subject, found: Sequence[Finding], field: str) -> AttackedText:
    first = found[0]
    others = {name: _short(text) for name, text in first.example.texts.items() if name != field}
    right = first.example.expected or [first.example.label]
    title = f"Row {first.example.row}, {' '.join(_label(first.run, number) for number in right)}"
    return AttackedText(title, others, [_version(subject, each, field) for each in found])


def _version(subject: Subject, found: Finding, field: str) -> Version:
    run, example, conditions = found
    pieces = [Piece(before, after) for before, after in example.aligned]
    if example.status != "broken":
        text = _short(example.texts[field])
        pieces = [Piece(text, text)]
    return Version(run.name, subject.marks[run.method], _outcome(run, example, conditions), _shortened(pieces))


def _outcome(run: ReportedRun, example: AttackedExample, conditions: MeaningFilter) -> str:
    if example.adversarial_prediction is not None:
        failed = [name for name, verdict in verdicts(example, conditions).items() if verdict is False]
        filtered = f", not counted when filtered ({', '.join(failed)})" if failed else ""
        return " → ".join(answers_of(example, run.labels)) + filtered
    several = example.expected or example.predicted
    before = "" if several else f"{_label(run, example.prediction)} {example.probabilities[example.prediction]:.0%}"
    if example.status == "wrong":
        return ": ".join(filter(None, ["wrong before any attack", before]))
    return ", ".join(filter(None, [f"unbroken ({example.status.replace('_', ' ')})", before]))


def _label(run: ReportedRun, number: int) -> str:
    return run.labels[number] if number < len(run.labels) else f"label {number}"


def _shortened(pieces: Sequence[Piece]) -> list[Piece]:
    """Changes with their surroundings: what is far from every change is left out."""
    merged: list[Piece] = []
    for before, after in pieces:
        kept = before == after
        if kept and merged and merged[-1].before == merged[-1].after:
            before = after = merged.pop().before + before
        merged.append(Piece(before, after))
    return [Piece(text := _short(each.before), text) if each.before == each.after else each for each in merged]


def _short(text: str) -> str:
    return text if len(text) <= 2 * CONTEXT else f"{text[:CONTEXT]} … {text[-CONTEXT:]}"


@section(place=72)
def transfer_section(subject: Subject) -> Section | None:
    """Which runs the texts break that an attack found on another: a table "found on, tried on" for each attack."""
    replays = {run.name: [each.report for each in kept_replays(run.evaluated.folder)] for run in subject.runs}
    own = {each.report.fingerprint: run.name for run in subject.runs for each in run.evaluated.attacks}
    grids = transfer_grids(replays, own, own)
    if not grids:
        return None
    lead = "Texts that were found on one model, tried on the others."
    return Section("Transfer", [Table(grid) for grid in grids], lead)


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
        Chart(certified_curves(found, kind), f"Curves: certified accuracy by the number of edits ({EDITS[kind]}).")
        for kind in kinds
    ]
    return Section(
        "Certificates",
        [Charts(charts, small=True), Table(certificate_grid(found))],
        "How many words may change before the answer of the smoothed model may change: up to then, no attack succeeds.",
    )


def certified_curves(certificates: Mapping[str, Certificate], kind: str) -> go.Figure:
    """One curve per certificate: the share of texts that are right and stay so, by the number of edits."""
    figure = go.Figure()
    for place, (name, each) in enumerate(certificates.items()):
        if kind not in each.kinds:
            continue
        radii = list(range(each.largest_radius(kind) + 2))
        accuracies = [100 * each.certified_accuracy(kind, radius) for radius in radii]
        figure.add_scatter(
            x=radii,
            y=accuracies,
            name=label(name),
            hovertext=[f"{label(name)}, {r} edits: {value:.1f} %" for r, value in zip(radii, accuracies, strict=True)],
            **mark(place).curve(),
        )
    small_chart(figure, label(EDITS[kind], longest=60), "edits", "certified accuracy in %")
    figure.update_traces(line_shape="hv")
    return figure.update_yaxes(range=[0, 101])
