"""What somebody who looks for the words that make a model wrong can do, in figures and in texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rosewood.attacks.search.table import CAPTION, COLUMNS, name_of, place_of, summary_cells
from rosewood.evaluation.attack_conditions import (
    Conditions,
    conditions_of,
    conditions_of_live,
    identity_of,
    told_apart,
)
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
    """A run under an attack; attacks of equal title met different models alike, with the same texts."""

    name: str
    place: str
    conditions: Conditions
    run: ReportedRun
    summary: AttackSummary
    kept: Attack | None = None
    """Its folder and examples, where they were kept."""
    apart: str = ""
    """What tells it from other attacks of this name on this place, which are numbered then."""

    @property
    def title(self) -> str:
        """The number stands before the place, which charts may cut off."""
        return f"{self.name} on {self.place}"

    @property
    def identity(self) -> str:
        """Equal for attacks that compare."""
        return identity_of(self.conditions)


class Finding(NamedTuple):
    """What an attack did to one example of a run."""

    run: ReportedRun
    example: AttackedExample


def section(subject: Subject) -> Section | None:
    """The accuracy under every attack, the figures, and some attacked texts."""
    found = attacked(subject.runs)
    table = attack_table(found)
    if table is None:
        return None
    by_attack: dict[str, dict[str, list[AttackSummary]]] = {}
    for each in found:
        by_attack.setdefault(each.title, {}).setdefault(each.run.method, []).append(each.summary)
    figure = robust_accuracy(by_attack, list(subject.methods))
    parts: list[Part] = []
    if figure is not None:
        parts.append(Charts([Chart(figure, "Dots with 95 % intervals: accuracy before and under each attack.")]))
    parts.append(Table(table))
    parts += _texts(subject, found)
    return Section(
        "Attacks", parts, "Only words or letters change; whether the meaning stays is for a reader to judge."
    )


def attack_table(found: Sequence[Attacked]) -> Grid | None:
    """The figures of all attacks; nothing if there were none."""
    rows = [[each.title, each.run.name, *summary_cells(each.summary)] for each in found]
    apart = dict.fromkeys(f"{each.title}: {each.apart}." for each in found if each.apart)
    return Grid("Attacks", ["attack", "run", *COLUMNS], rows, " ".join([CAPTION, *apart]), texts=2) if rows else None


def attacked(runs: Sequence[ReportedRun]) -> list[Attacked]:
    """All attacks on the runs, those of one title together."""
    by_name: dict[tuple[str, str], dict[str, list[Attacked]]] = {}
    names: dict[str, tuple[str, str]] = {}
    for each in _made(runs):
        name = names.setdefault(each.identity, (each.name, each.place))
        by_name.setdefault(name, {}).setdefault(each.identity, []).append(each)
    return [
        each._replace(name=f"{name} ({number})" if words else name, apart=words)
        for (name, _), same in by_name.items()
        for number, (words, alike) in enumerate(_apart(list(same.values())), start=1)
        for each in alike
    ]


def _apart(several: Sequence[list[Attacked]]) -> Iterator[tuple[str, list[Attacked]]]:
    return zip(told_apart([alike[0].conditions for alike in several]), several, strict=True)


def _made(runs: Sequence[ReportedRun]) -> Iterator[Attacked]:
    """Those that were kept, and those that an evaluation made."""
    for run in runs:
        evaluation = run.evaluated.evaluation
        for kept in run.attacks:
            report = kept.report
            # Experiments record an attack twice: in its folder, and in the evaluation under its label.
            labels = [live.attack for live in evaluation.attacks if live.summary == report.summary]
            name = labels[0] if len(labels) == 1 else name_of(report)
            yield Attacked(name, place_of(report), conditions_of(report), run, report.summary, kept)
        for live in evaluation.attacks:
            if all(live.summary != kept.report.summary for kept in run.attacks):
                yield Attacked(live.attack, live.of, conditions_of_live(live, evaluation), run, live.summary)


def _texts(subject: Subject, found: Sequence[Attacked]) -> Iterator[AttackedTexts]:
    """The same texts under the same attack, for the first run of each method that met it."""
    for title in dict.fromkeys(each.title for each in found):
        met: dict[str, tuple[ReportedRun, Attack]] = {}
        for each in found:
            if each.title == title and each.kept is not None:
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
            yield AttackedTexts(f"Texts that broke under {title}", shown, _more(len(broken) - len(shown), pairs))


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
