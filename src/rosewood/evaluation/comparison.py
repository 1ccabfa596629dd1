"""Recipes against each other in tables: over seeds, beside published figures, and on the same examples."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rosewood.errors import DataError, RunError, closest
from rosewood.evaluation.evaluated_runs import EvaluatedRun, by_method
from rosewood.evaluation.layout import Grid
from rosewood.evaluation.means import MEASURED
from rosewood.evaluation.method_figures import (
    SUMMARIES,
    WORST_GROUP,
    Figure,
    Figures,
    figures_by_method,
    is_summarised,
    over_seeds,
)
from rosewood.evaluation.predictions_file import correct_by_set
from rosewood.evaluation.roast_summary import RANK, improvements, ranks
from rosewood.evaluation.shared_tasks import shared_tasks
from rosewood.evaluation.statistics import (
    PairedBootstrap,
    holm,
    mcnemar,
    mean_and_deviation,
    paired_bootstrap,
    t_interval,
)
from rosewood.evaluation.table import MEANS, WORST, half_width, percent
from rosewood.results import Evaluation

LEVEL = 0.05

Published = Mapping[str, Mapping[str, float | None]]
"""Method -> column, in one line -> what a paper reports, as a share; None if it is not known."""


def compared(
    runs: Sequence[EvaluatedRun], baseline: str | None = None, published: Published | None = None
) -> list[Grid]:
    """The table of methods, perhaps beside published figures; with a baseline, also differences on equal examples."""
    found = [methods_table(runs, baseline, published)]
    if baseline is not None:
        found.append(_paired(by_method(runs), baseline))
    return [grid for grid in found if grid.rows]


def methods_table(
    runs: Sequence[EvaluatedRun], baseline: str | None = None, published: Published | None = None
) -> Grid:
    """One row a method: its figures over seeds, marked where they are better than the baseline's."""
    methods = by_method(runs)
    check_baseline(baseline, methods)
    return _methods(methods, baseline, published or {})


def intervals_table(runs: Sequence[EvaluatedRun]) -> Grid:
    """How sure the means of the table of methods are: their 95 % intervals, of methods with several seeds."""
    methods = by_method(runs)
    values = figures_by_method(methods)
    columns = _columns(values)
    some = runs[0].evaluation
    rows = [
        [method, *(_interval(list(values[method].get(column, {}).values())) for column in columns)]
        for method in methods
    ]
    return Grid(
        f"{_title(methods)}, 95 % intervals of the means",
        ["method", *(_heading(some, column, methods) for column in columns)],
        rows,
        "In %, by Student's t over seeds, which knows no bounds such as 100; -: fewer than two seeds.",
    )


def _interval(figures: Sequence[Figure]) -> str:
    return " to ".join(map(percent, t_interval([each.value for each in figures]))) if len(figures) > 1 else "-"


def check_baseline(baseline: str | None, methods: Iterable[str]) -> None:
    """Refuse a baseline that is not among the methods."""
    if baseline is not None and baseline not in methods:
        raise RunError(f"no run was trained with {baseline}: {closest(baseline, list(methods))}")


def _methods(methods: Mapping[str, Sequence[EvaluatedRun]], baseline: str | None, published: Published) -> Grid:
    values = figures_by_method(methods)
    columns = _columns(values)
    marks = {} if baseline is None else _marks(values, baseline)
    improved, ranked = improvements(methods, baseline), ranks(methods)
    extra = list(dict.fromkeys(name for found in improved.values() for name in found))
    rows = []
    for method, runs in methods.items():
        found = {column: list(values[method].get(column, {}).values()) for column in columns}
        cells = [
            _cell(figures) + marks.get((method, column), "") + _fewer_seeds(column, figures, runs)
            for column, figures in found.items()
        ]
        others = [f"{improved[method][name]:.1f}" if name in improved[method] else "-" for name in extra]
        rows.append([method, _seeds(runs), *cells, *others, *([f"{ranked[method]:.1f}"] if ranked else [])])
    some = next(iter(methods.values()))[0].evaluation
    header = ["method", "seeds", *(_heading(some, column, methods) for column in columns), *extra]
    keys = ["", "", *map(one_line, [*columns, *extra])]
    if ranked:
        header, keys = [*header, RANK], [*keys, RANK]
    grid = Grid(_title(methods), header, rows, _caption(methods, columns, baseline, marks))
    return _beside(grid, keys, published) if published else grid


def _columns(values: Figures) -> list[str]:
    """Those of all methods; summaries are last, the others stay in their order."""
    columns = dict.fromkeys(column for found in values.values() for column in found)
    return sorted(columns, key=SUMMARIES.__contains__)


def one_line(column: str) -> str:
    """A column as a file names it."""
    return " ".join(column.split())


def _beside(grid: Grid, keys: Sequence[str], published: Published) -> Grid:
    """The grid with a column of published figures after each that some method has one for."""
    given = {key for figures in published.values() for key in figures}
    header, rows = [], [list[str]() for _ in grid.rows]
    for place, key in enumerate(keys):
        header += [grid.header[place], *([f"paper\n{key}"] if key in given else [])]
        for row, new in zip(grid.rows, rows, strict=True):
            new.append(row[place])
            if key in given:
                value = published.get(row[0], {}).get(key)
                new.append("unknown" if value is None else percent(value))
    caption = f"{grid.caption} Paper: as published; unknown: not reported, or not at hand."
    if unmeasured := sorted(given.difference(keys)):
        caption += f" Published, but not a column here: {', '.join(unmeasured)}."
    return replace(grid, header=header, rows=rows, caption=caption)


def _heading(evaluation: Evaluation, column: str, methods: Mapping[str, Sequence[EvaluatedRun]]) -> str:
    """The name of a column; a mean says how many sets or tasks it lacks, which are the same in all runs."""
    if column in SUMMARIES:
        return column + _share_of_tasks(evaluation.suite or "", methods)
    mean = next((each for each in evaluation.means if each.name == column and evaluation.suite), None)
    if mean is None or not mean.missing:
        return MEANS.get(column, column)
    return f"{MEANS[column]}\n{len(mean.sets)} of {len(mean.sets) + len(mean.missing)} sets"


def _share_of_tasks(suite: str, methods: Mapping[str, Sequence[EvaluatedRun]]) -> str:
    """Over how many tasks of their suite the summaries are, if not over all."""
    from rosewood.data.suites import load_suite

    shared = shared_tasks(methods).tasks
    summarised = {run.evaluation.task for runs in methods.values() for run in runs if is_summarised(run.evaluation)}
    tasks = [task for task in shared if task in summarised]
    try:
        whole = load_suite(suite).tasks
    except DataError:  # a file of the user's own, which may be gone
        whole = tasks
    return f"\n{len(tasks)} of {len(whole)} tasks" if len(tasks) < len(whole) else ""


def _fewer_seeds(column: str, figures: Sequence[Figure], runs: Sequence[EvaluatedRun]) -> str:
    """Of a summary, from how many seeds it is, where some lack tasks."""
    seeds = len({run.seed for run in runs})
    return f"\n{len(figures)} of {seeds} seeds" if column in SUMMARIES and 0 < len(figures) < seeds else ""


def _title(methods: Mapping[str, Sequence[EvaluatedRun]]) -> str:
    first = next(iter(methods.values()))[0].evaluation
    return f"Robustness on the suite {first.suite}" if first.suite else f"Robustness on {first.task}"


def _caption(
    methods: Mapping[str, Sequence[EvaluatedRun]],
    columns: Sequence[str],
    baseline: str | None,
    marks: Mapping[tuple[str, str], str],
) -> str:
    parts = ["In %: mean ± standard deviation over seeds; of a single run ± half the width of the 95 % interval."]
    if any(column.startswith(WORST_GROUP) for column in columns):
        parts.append(WORST)
    if set(SUMMARIES) <= set(columns):
        parts.append(
            "Over the tasks that all methods have, mean: of clean and adversarial accuracy; drop: how much lower the "
            "adversarial is."
        )
    lacking = sorted({name for runs in methods.values() for run in runs for name in _lacking(run.evaluation)})
    if lacking:
        parts.append(f"Missing, and so not in the means: {', '.join(lacking)}.")
    if baseline is not None and marks:
        parts.append(
            f"*: better than {baseline}, p < {LEVEL} (Welch's one-tailed t-test over seeds, Holm-adjusted; not tested: "
            "worst groups, gaps, and what no seed changes)."
        )
    elif baseline is not None:
        parts.append("No test over seeds: it takes two runs or more of both methods that differ.")
    return " ".join(parts)


def _lacking(evaluation: Evaluation) -> list[str]:
    return [each.name for each in evaluation.missing if each.counted and each.role != "reference"]


def _cell(figures: Sequence[Figure]) -> str:
    if not figures:
        return "missing"
    mean, deviation = mean_and_deviation([each.value for each in figures])
    if not math.isnan(deviation):
        return f"{percent(mean)} ±{percent(deviation)}"
    (single,) = figures
    return percent(mean) + ("" if single.interval is None else f" {half_width(single.interval)}")


def _seeds(runs: Sequence[EvaluatedRun]) -> str:
    seeds = sorted({run.seed for run in runs if run.seed is not None})
    return str(len(seeds)) if seeds else "-"


def _marks(values: Figures, baseline: str) -> dict[tuple[str, str], str]:
    """Marks of the cells that are significantly better than the baseline's."""
    return {cell: "*" if test.adjusted < LEVEL else "" for cell, test in over_seeds(values, baseline).items()}


class Difference(NamedTuple):
    """A run against the baseline's of the same seed, on the same examples of one set."""

    method: str
    seed: int | None
    set: str
    change: PairedBootstrap
    p: float
    adjusted: float
    """For all differences of the table."""


def differences(methods: Mapping[str, Sequence[EvaluatedRun]], baseline: str) -> list[Difference]:
    """Single runs against the baseline's run of the same seed, wherever both have their predictions."""
    found: list[Difference] = []
    for method, run, other in _pairs(methods, baseline):
        correct, before = _correct(run), _correct(other)
        data = {each.name: each.data for each in other.evaluation.sets}
        for each in run.evaluation.sets:
            if each.role not in MEASURED or data.get(each.name) != each.data:
                continue
            change = paired_bootstrap(correct[each.name], before[each.name], run.evaluation.seed)
            p = mcnemar(correct[each.name], before[each.name])
            found.append(Difference(method, run.seed, each.name, change, p, adjusted=p))
    adjusted = holm({str(place): each.p for place, each in enumerate(found)})
    return [each._replace(adjusted=adjusted[str(place)]) for place, each in enumerate(found)]


def _paired(methods: Mapping[str, Sequence[EvaluatedRun]], baseline: str) -> Grid:
    return Grid(
        f"Difference from {baseline} on the same examples",
        ["method", "seed", "set", "difference", "95 % interval", "p", "p (Holm)"],
        [_difference_row(each) for each in differences(methods, baseline)],
        "Accuracy in points, interval by paired bootstrap; p by McNemar's exact test, two-sided; Holm: adjusted for "
        f"all rows; *: below {LEVEL}.",
        texts=3,
    )


def _difference_row(each: Difference) -> list[str]:
    interval = f"{100 * each.change.low:+.1f} to {100 * each.change.high:+.1f}"
    adjusted = f"{each.adjusted:.3f}" + ("*" if each.adjusted < LEVEL else "")
    change = f"{100 * each.change.difference:+.1f}"
    return [each.method, str(each.seed), each.set, change, interval, f"{each.p:.3f}", adjusted]


def _correct(run: EvaluatedRun) -> dict[str, NDArray[np.bool_]]:
    """Which examples of each set a run had right, as its evaluation says."""
    correct = correct_by_set(run.predictions)
    for each in run.evaluation.sets:
        found = correct.get(each.name, np.zeros(0, dtype=bool))
        if len(found) != each.examples or found.mean() != each.accuracy:
            raise RunError(f"{run.predictions} is not of the same evaluation as {run.folder}: evaluate the run again.")
    return correct


def _pairs(
    methods: Mapping[str, Sequence[EvaluatedRun]], baseline: str
) -> Iterator[tuple[str, EvaluatedRun, EvaluatedRun]]:
    before = {(run.seed, run.evaluation.task): run for run in methods[baseline]}
    for method, runs in methods.items():
        for run in runs if method != baseline else []:
            other = before.get((run.seed, run.evaluation.task))
            if other is not None and all(each.predictions.exists() for each in (run, other)):
                yield method, run, other
