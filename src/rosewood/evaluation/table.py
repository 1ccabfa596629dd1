"""Evaluations side by side as a table for the terminal."""

from typing import get_args

from rich.markup import escape
from rich.table import Table

from rosewood.errors import RunError
from rosewood.results import Evaluation, Role, SetResult


def render(evaluations: dict[str, Evaluation]) -> Table:
    """One row per model or run, one column per evaluation set, and the calibration error on clean text."""
    tasks = sorted({evaluation.task for evaluation in evaluations.values()})
    if len(tasks) != 1:
        raise RunError(f"a table compares models on one task; got {', '.join(tasks) or 'no evaluation'}.")
    headings = _headings(evaluations)
    table = Table(
        title=f"Robustness on {tasks[0]}",
        caption="Accuracy in %, ± half the width of its 95 % Wilson interval. "
        "ECE: expected calibration error in %, 10 bins.",
    )
    table.add_column("model", no_wrap=True)
    for name, role in headings.items():
        table.add_column(f"{escape(name)}\n({role})", justify="right")
    table.add_column("ECE\n(clean)", justify="right")
    for row, evaluation in evaluations.items():
        table.add_row(escape(row), *_cells(evaluation, list(headings)))
    return table


def _headings(evaluations: dict[str, Evaluation]) -> dict[str, str]:
    # By role, clean first, and missing sets among the others.
    found: dict[str, str] = {}
    for evaluation in evaluations.values():
        found |= {each.name: each.role for each in evaluation.sets}
        found |= {each.name: each.role for each in evaluation.missing}
    roles = get_args(Role)
    return dict(sorted(found.items(), key=lambda item: roles.index(item[1])))


def _cells(evaluation: Evaluation, names: list[str]) -> list[str]:
    results = {result.name: result for result in evaluation.sets}
    clean = next((result for result in evaluation.sets if result.role == "clean"), None)
    accuracies = [_accuracy(results[name]) if name in results else "missing" for name in names]
    return [*accuracies, f"{100 * clean.ece:.1f}" if clean else "missing"]


def _accuracy(result: SetResult) -> str:
    low, high = result.interval
    return f"{100 * result.accuracy:.1f} ±{50 * (high - low):.1f}"
