"""How far a cell is, read from its folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from glob import escape
from pathlib import Path

from rosewood.errors import RunError
from rosewood.experiments.cell import ERROR, RESULT, RUN, Cell
from rosewood.experiments.engines.local import LOG
from rosewood.results import CellResult, CellState, Metrics

_LAST_LINES = 4


@dataclass(frozen=True)
class Standing:
    """A cell, its folder, its result if it has one, and why work on it failed if it did."""

    cell: Cell
    folder: Path
    result: CellResult | None
    error: str | None
    begun: bool

    @property
    def state(self) -> CellState:
        """What a table says of it; whether somebody works on it right now is not in the folder."""
        if self.result is not None:
            return "finished"
        if self.error is not None:
            return "failed"
        return "interrupted" if self.begun else "waiting"


def standing(cell: Cell, output: Path) -> Standing:
    """Read the folder of a cell; a result of other settings is none."""
    folder = output / cell.name
    error = _error(folder) if (folder / ERROR).exists() else None
    return Standing(cell, folder, _result(cell, folder), error, (folder / RUN).exists())


def _result(cell: Cell, folder: Path) -> CellResult | None:
    result = _loaded(folder)
    return result if result is not None and result.fingerprint == cell.fingerprint else None


def _loaded(folder: Path) -> CellResult | None:
    try:
        return CellResult.load(folder / RESULT)
    except RunError:  # none, or a damaged one: the work is done again from what there is
        return None


def _error(folder: Path) -> str:
    lines = (folder / ERROR).read_text(encoding="utf-8").strip().splitlines()
    return "\n".join([*lines[-_LAST_LINES:], f"Log: {folder.name}/{LOG}"])


def finished_otherwise(found: Sequence[Standing]) -> list[Path]:
    """Folders of finished cells that are called like unfinished ones of these, and have other settings or data."""
    ours = {each.folder for each in found}
    alike = dict.fromkeys(
        result.parent
        for each in found
        if each.result is None
        for result in each.folder.parent.glob(f"{escape(each.cell.place)}-*/{RESULT}")
    )
    return [folder for folder in alike if folder not in ours and _loaded(folder) is not None]


def doing(found: Standing) -> str:
    """What a worker does with a cell at the moment, and how much of it is done."""
    run = found.folder / RUN
    if (run / "evaluation.json").exists():
        return "attacking" if found.cell.attacks else "evaluating"
    if (run / "metrics.json").exists():
        return "evaluating"
    steps, expected = _steps(run), found.cell.steps()
    if not steps:
        return "starting"
    return f"training {min(1.0, steps / expected):.0%}" if expected else f"training, step {steps}"


def accuracy(found: Standing) -> str:
    """On the clean set once it is known, on validation data before."""
    if found.result is not None:
        clean = next((each for each in found.result.evaluation.sets if each.role == "clean"), None)
        return "-" if clean is None else f"{clean.accuracy:.1%}"
    try:
        value = Metrics.load(found.folder / RUN / "metrics.json").validation_accuracy
    except RunError:
        return ""
    return "" if value is None else f"{value:.1%} (validation)"


def _steps(run: Path) -> int:
    try:
        with (run / "history.jsonl").open("rb") as file:
            return sum(1 for _ in file)
    except OSError:
        return 0
