"""Transfer: which models the texts that were found on one model break as well, as a table "found on, tried on"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rosewood.attacks.runner.report import place_of
from rosewood.results import AttackReport
from rosewood.results.grid import Grid

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
