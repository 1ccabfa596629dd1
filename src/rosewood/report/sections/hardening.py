"""How a run was hardened, from its harden.json: tables for a page, a card and a terminal."""

from __future__ import annotations

from rosewood.report.figures.lab import hardening
from rosewood.report.sections import Chart, Charts, Listing, Section, Table
from rosewood.results import START, CandidateFigures, Change, Hardening
from rosewood.results.grid import Grid
from rosewood.tensors.statistics import wilson_interval

READ_ONCE = "Test rows were read once, after everything was chosen."


def stage_of(found: CandidateFigures) -> str:
    """How far a candidate has come."""
    if found.candidate == START:
        return "as it is"
    return f"{found.steps} steps" if found.steps else "no training"


def figures_of(found: CandidateFigures) -> tuple[str, str, str]:
    """A candidate's clean and robust accuracy, and its cost, as cells of a table."""
    return _accuracy(found.right), _accuracy(found.robust), f"{found.cost:g}"


def _accuracy(right: list[bool]) -> str:
    low, high = wilson_interval(sum(right), len(right))
    return f"{100 * sum(right) / len(right):.1f} ({100 * low:.0f}-{100 * high:.0f})"


def tried_grid(state: Hardening) -> Grid:
    """All candidates on held-out rows, for a page or a file."""
    rows = [[each.candidate, stage_of(each), *figures_of(each)] for each in state.tried]
    caption = (
        "In %, with 95 % Wilson intervals, on rows held out from training; as each was measured last. Robust: right "
        f"under {' and '.join(state.threats)}. Cost: passes of the network for one text."
    )
    return Grid("Candidates", ["candidate", "stage", "clean", "robust", "cost"], rows, caption, texts=2)


def changes_grid(state: Hardening) -> Grid:
    """Before and after on test rows."""
    rows = [[each.what, str(each.examples), *sides_of(each), *_test(each)] for each in state.changes]
    caption = (
        f"{READ_ONCE} In %, with 95 % intervals: Wilson for accuracies, Newcombe for the change; p: McNemar's "
        "exact test on the same rows, two-sided."
    )
    header = ["", "rows", "before", "after", "change", "95 % interval", "p"]
    return Grid(f"{state.task}: your model, and {state.winner}", header, rows, caption)


def sides_of(each: Change) -> list[str]:
    """A figure before and after, as cells of a table."""
    pairs = ((each.before, each.before_interval), (each.after, each.after_interval))
    return [
        f"{100 * value:.1f}" + ("" if ends is None else f" ({100 * ends[0]:.0f}-{100 * ends[1]:.0f})")
        for value, ends in pairs
    ]


def _test(each: Change) -> list[str]:
    ends = "" if each.interval is None else f"{100 * each.interval[0]:+.1f} to {100 * each.interval[1]:+.1f}"
    p = "" if each.p is None else "< 0.001" if each.p < 0.001 else f"{each.p:.3f}"
    return [f"{100 * each.difference:+.1f}", ends, p]


def hardening_section(state: Hardening) -> Section:
    """What was tried on held-out rows, and how the winner is made."""
    chart = Chart(hardening(state), "Each candidate's clean and robust accuracy on held-out rows, with 95 % intervals.")
    parts = [Charts([chart]), Table(tried_grid(state))]
    if state.changes:
        parts.insert(0, Table(changes_grid(state)))
    if state.reproduce:
        parts.append(Listing(f"How {state.winner} is made", state.reproduce, folded=False))
    return Section(
        "What was tried", parts, "Rows that were held out from training chose; test rows were read once, at the end."
    )
