"""Attacks and certificates of runs as tables, and which models the texts that were found on one model break as well."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rosewood.attacks.runner.report import COLUMNS, caption_of, name_of, place_of, summary_cells, title_of
from rosewood.comparison.runs import (
    Conditions,
    EvaluatedRun,
    KeptAttack,
    conditions_of,
    conditions_of_live,
    distinguished,
    identity_of,
)
from rosewood.errors import RunError
from rosewood.results import AttackReport, AttackSummary, Evaluation
from rosewood.results.attack import COST, Certificate, with_cost
from rosewood.results.evaluation import GUESSING_NOTE, guesses_before, is_guessing, marked
from rosewood.results.grid import Grid

UNDER = "under "
"""How the columns of attacks begin."""


class Attacked(NamedTuple):
    """A run under an attack; attacks of equal title met different models alike, with the same texts."""

    name: str
    place: str
    conditions: Conditions
    run: EvaluatedRun
    summary: AttackSummary
    of: str
    """What was attacked, as the columns of a table call it."""
    kept: KeptAttack | None = None
    """Its folder and examples, where they were kept."""
    apart: str = ""
    """What tells it from other attacks of this name on this place, which are numbered then."""

    @property
    def title(self) -> str:
        """The number comes before the place, which charts may cut off."""
        return f"{self.name} on {self.place}"

    @property
    def column(self) -> str:
        """The column of its robust accuracy in a table of methods."""
        return f"{UNDER}{self.name}\n{self.of}"

    @property
    def identity(self) -> str:
        """Equal for attacks that compare."""
        return identity_of(self.conditions)

    @property
    def guessing(self) -> bool:
        """Whether the model is at guessing, by its evaluation or before the attack."""
        return is_guessing(self.run.evaluation) or guesses_before(self.summary)


def attacked(runs: Sequence[EvaluatedRun]) -> list[Attacked]:
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


def attacked_grid(reports: Mapping[str, AttackReport]) -> Grid:
    """One attack on some models, a row for each.

    Raises:
        RunError: The attacks are of different protocols, whose figures do not compare.
    """
    protocols = dict.fromkeys(report.protocol or "none" for report in reports.values())
    if len(protocols) > 1:
        raise RunError(
            f"figures of different protocols do not share a table, got {' and '.join(protocols)}: attack all models "
            "with the same --protocol"
        )
    guessing = {model: guesses_before(report.summary) for model, report in reports.items()}
    rows = [
        [marked(with_cost(model, report.forwards), guessing[model]), *summary_cells(report.summary)]
        for model, report in reports.items()
    ]
    caption = caption_of(reports.values()) + (f" {GUESSING_NOTE}" if any(guessing.values()) else "")
    caption += f" {COST}" if any(report.forwards != 1 for report in reports.values()) else ""
    return Grid(title_of(next(iter(reports.values()))), ["model", *COLUMNS], rows, caption)


def is_of_a_task(evaluation: Evaluation) -> bool:
    """Whether it is of one task of a suite over several, whose columns must differ."""
    return evaluation.suite is not None and evaluation.task != evaluation.suite


def _apart(several: Sequence[list[Attacked]]) -> Iterator[tuple[str, list[Attacked]]]:
    return zip(distinguished([alike[0].conditions for alike in several]), several, strict=True)


def _made(runs: Sequence[EvaluatedRun]) -> Iterator[Attacked]:
    """Those that were kept, and those that an evaluation made."""
    for run in runs:
        evaluation = run.evaluation
        for kept in run.attacks:
            report = kept.report
            # Experiments record an attack twice: in its folder, and in the evaluation under its label.
            lives = [live for live in evaluation.attacks if live.summary == report.summary]
            live = lives[0] if len(lives) == 1 else None
            name, place = live.attack if live else name_of(report), place_of(report)
            of = place if live is None else _of(evaluation, live.of)
            yield Attacked(name, place, conditions_of(report), run, report.summary, of, kept)
        for live in evaluation.attacks:
            if all(live.summary != kept.report.summary for kept in run.attacks):
                of, conditions = _of(evaluation, live.of), conditions_of_live(live, evaluation)
                yield Attacked(live.attack, live.of, conditions, run, live.summary, of)


def _of(evaluation: Evaluation, name: str) -> str:
    return evaluation.task if is_of_a_task(evaluation) else name


EDITS = {
    "changed": "any word in place of a word",
    "inserted": "words inserted",
    "deleted": "words deleted",
    "edited": "words changed, inserted or deleted",
    "synonyms": "synonyms in place of words",
}
RADII = (0, 1, 2, 3, 4, 5, 7, 10, 15, 20)


def kept_certificates(run: Path) -> list[Certificate]:
    """What `rosewood certify` has left in the folder of a run."""
    return [Certificate.load(file) for file in sorted(run.glob("certificates/*/certificate.json"))]


def certificate_title(certificate: Certificate) -> str:
    """The copies, and on what."""
    place = " ".join(filter(None, [certificate.task, certificate.split]))
    return f"{certificate.by} {certificate.share:g}" + (f" on {place}" if place else "")


def certificate_grid(certificates: Mapping[str, Certificate]) -> Grid:
    """A row for each model and kind of edit; a column for each number of edits that some text withstands."""
    largest = max((each.largest_radius(kind) for each in certificates.values() for kind in each.kinds), default=0)
    radii = [radius for radius in RADII if radius <= max(1, largest)]
    rows = [
        [
            model,
            EDITS[kind],
            str(len(each.examples)),
            f"{100 * each.abstained:.1f}",
            *(f"{100 * each.certified_accuracy(kind, radius):.1f}" for radius in radii),
        ]
        for model, each in certificates.items()
        for kind in each.kinds
    ]
    costs = {each.copies + each.selection_copies for each in certificates.values()}
    sure = {f"{100 * each.confidence:g}" for each in certificates.values()}
    caption = (
        f"Certified accuracy in %, by the number of edits: the answer (the vote over all copies) is right, and no such "
        f"edits can change it, with {' or '.join(sorted(sure))} % confidence for each text. 0: accuracy without edits. "
        "Abstained: % of the texts without an answer. "
        f"×{' or ×'.join(map(str, sorted(costs)))} passes of the network for each text."
    )
    return Grid("Certificates", ["model", "edits", "n", "abstained", *map(str, radii)], rows, caption, texts=2)


CAPTION = (
    "Rows: the model on which an attack found texts. Columns: the model on which they were tried. Cells: % of these "
    "texts that break it, and of how many texts: those whose original it gets right. Nobody searched for texts that "
    "break the model of a column, so this is not its robust accuracy."
)


def source_of(report: AttackReport) -> str:
    """The fingerprint of the attack whose texts a replay tries."""
    return str(report.settings["source"])


def transfer_grids(
    replays: Mapping[str, Sequence[AttackReport]], names: Mapping[str, str], own: Mapping[str, str] | None = None
) -> list[Grid]:
    """A table for each attack.

    Args:
        replays: Name of a model -> the replays on it; the names are the columns.
        names: Fingerprint of an attack -> the name of the model that it was on; other models have their own.
        own: Fingerprint of an attack -> the column of the model that it was on, where its texts need no second try.
    """
    found = [(tried, each) for tried, reports in replays.items() for each in reports]
    titles = dict.fromkeys((str(each.settings["attack"]), place_of(each)) for _, each in found)
    grids = []
    for attack, place in titles:
        cells: dict[str, dict[str, str]] = {}
        rows: dict[str, str] = {}
        for tried, each in found:
            if (each.settings["attack"], place_of(each)) == (attack, place):
                source = source_of(each)
                rows[source] = names.get(source, str(each.settings["found_on"]).removesuffix("/model"))
                cells.setdefault(source, {})[tried] = _cell(each)
        for source, tried in (own or {}).items():
            if source in cells:
                cells[source].setdefault(tried, "found here")
        if len(set(rows.values())) < len(rows):  # several attacks of this name on one model
            rows = {source: f"{name} {source[:8]}" for source, name in rows.items()}
        columns = [tried for tried in replays if any(tried in row for row in cells.values())]
        grids.append(
            Grid(
                f"{attack} on {place}: found on, tried on",
                ["found on", *columns],
                [[name, *(cells[source].get(tried, "-") for tried in columns)] for source, name in rows.items()],
                CAPTION,
            )
        )
    return grids


def _cell(report: AttackReport) -> str:
    summary = report.summary
    right = summary.examples - summary.counts.get("wrong", 0)
    return "-" if summary.success_rate is None else f"{100 * summary.success_rate:.1f}\nof {right}"
