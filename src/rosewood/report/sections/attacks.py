"""What somebody who looks for the words that make a model wrong can do, in figures and in texts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rosewood.attacks.search.table import CAPTION, COLUMNS, summary_cells, title_of
from rosewood.evaluation.layout import Grid
from rosewood.figures.robust_accuracy import robust_accuracy
from rosewood.report.parts import AttackedText, AttackedTexts, Chart, Charts, Part, Piece, Section, Table, Version
from rosewood.report.subject import Attack, ReportedRun, Subject
from rosewood.results import AttackedExample, AttackSummary

PLACE = 70
TEXTS = 5
"""How many texts of an attack are shown."""
CONTEXT = 160
"""Letters around a change that a long text keeps."""


class Attacked(NamedTuple):
    """A run under an attack; attacks with an equal identity met different models with the same texts."""

    identity: str
    title: str
    run: ReportedRun
    summary: AttackSummary
    kept: Attack | None
    """Its folder and examples, where they were kept."""


class Finding(NamedTuple):
    """What an attack did to one example of a run."""

    run: ReportedRun
    example: AttackedExample


def section(subject: Subject) -> Section | None:
    """The accuracy under every attack, the figures, and some attacked texts."""
    found = list(attacked(subject.runs))
    if not found:
        return None
    names = _names(found)
    by_attack: dict[str, dict[str, list[AttackSummary]]] = {}
    for each in found:
        by_attack.setdefault(names[each.identity], {}).setdefault(each.run.method, []).append(each.summary)
    figure = robust_accuracy(by_attack, list(subject.methods))
    parts: list[Part] = []
    if figure is not None:
        parts.append(Charts([Chart(figure, "Dots with 95 % intervals: accuracy before and under each attack.")]))
    parts.append(Table(_table(found, names)))
    parts += _texts(subject, found, names)
    return Section(
        "Attacks", parts, "Only words or letters change; whether the meaning stays is for a reader to judge."
    )


def attack_table(runs: Sequence[ReportedRun]) -> Grid | None:
    """The figures of all attacks on the runs; nothing if there were none."""
    found = list(attacked(runs))
    return _table(found, _names(found)) if found else None


def _table(found: Sequence[Attacked], names: dict[str, str]) -> Grid:
    ordered = [each for identity in names for each in found if each.identity == identity]
    rows = [[names[each.identity], each.run.name, *summary_cells(each.summary)] for each in ordered]
    return Grid("Attacks", ["attack", "run", *COLUMNS], rows, CAPTION, texts=2)


def attacked(runs: Sequence[ReportedRun]) -> Iterator[Attacked]:
    """All attacks on the runs: those that were kept, and those that an evaluation made."""
    for run in runs:
        for kept in run.attacks:
            report = kept.report
            decisive = [report.data, report.field, report.settings, report.max_queries, report.max_seconds, report.seed]
            identity = json.dumps([title_of(report), *decisive])
            yield Attacked(identity, title_of(report), run, report.summary, kept)
        for live in run.evaluated.evaluation.attacks:
            if all(live.summary != kept.report.summary for kept in run.attacks):  # experiments record both alike
                title = f"{live.attack} on {live.of}"
                yield Attacked(json.dumps([title, live.settings]), title, run, live.summary, None)


def _names(found: Sequence[Attacked]) -> dict[str, str]:
    """Identity -> title; the second of the same title is numbered."""
    titles: dict[str, list[str]] = {}
    for each in found:
        same = titles.setdefault(each.title, [])
        same += [] if each.identity in same else [each.identity]
    return {
        identity: title if number == 1 else f"{title} ({number})"
        for title, same in titles.items()
        for number, identity in enumerate(same, start=1)
    }


def _texts(subject: Subject, found: Sequence[Attacked], names: dict[str, str]) -> Iterator[AttackedTexts]:
    """The same texts under the same attack, for the first run of each method that met it."""
    for identity, name in names.items():
        met: dict[str, tuple[ReportedRun, Attack]] = {}
        for each in found:
            if each.identity == identity and each.kept is not None:
                met.setdefault(each.run.method, (each.run, each.kept))
        pairs = list(met.values())
        broken = sorted({each.row for _, kept in pairs for each in kept.examples() if each.status == "broken"})
        by_row: dict[int, list[Finding]] = {row: [] for row in broken[:TEXTS]}
        for run, kept in pairs:
            for example in kept.examples():
                if example.row in by_row:
                    by_row[example.row].append(Finding(run, example))
        if broken:
            shown = [_text(subject, findings, pairs[0][1].report.field) for findings in by_row.values()]
            yield AttackedTexts(f"Texts that broke under {name}", shown, _more(len(broken) - len(shown), pairs))


def _more(left: int, met: Sequence[tuple[ReportedRun, Attack]]) -> str:
    if left <= 0:
        return ""
    folders = ", ".join(str(attack.folder) for _, attack in met[:3]) + (", …" if len(met) > 3 else "")
    return f"{left} more {'text was' if left == 1 else 'texts were'} broken; all are in examples.jsonl of {folders}."


def _text(subject: Subject, found: Sequence[Finding], field: str) -> AttackedText:
    first = found[0]
    others = {name: _short(text) for name, text in first.example.texts.items() if name != field}
    title = f"Row {first.example.row}, {_label(first.run, first.example.label)}"
    return AttackedText(title, others, [_version(subject, each, field) for each in found])


def _version(subject: Subject, found: Finding, field: str) -> Version:
    run, example = found
    pieces = [Piece(before, after) for before, after in example.aligned]
    if example.status != "broken":
        text = _short(example.texts[field])
        pieces = [Piece(text, text)]
    return Version(run.name, subject.marks[run.method], _outcome(run, example), _shortened(pieces))


def _outcome(run: ReportedRun, example: AttackedExample) -> str:
    before = f"{_label(run, example.prediction)} {example.probabilities[example.prediction]:.0%}"
    if example.status == "wrong":
        return f"wrong before any attack: {before}"
    if example.adversarial_prediction is None or example.adversarial_probabilities is None:
        return f"unbroken ({example.status.replace('_', ' ')}), {before}"
    after = example.adversarial_prediction
    return f"{before} → {_label(run, after)} {example.adversarial_probabilities[after]:.0%}"


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
