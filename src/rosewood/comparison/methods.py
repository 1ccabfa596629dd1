"""Methods against each other: a table over seeds, beside published figures, and what was not tested."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from rosewood.comparison.attack_tables import attacked
from rosewood.comparison.runs import (
    EvaluatedRun,
    by_method,
    shared_tasks,
    untested_note,
)
from rosewood.comparison.significance import (
    GAP,
    LEVEL,
    SUMMARIES,
    WORST_GROUP,
    Figure,
    Figures,
    bounds_of,
    figures_by_method,
    is_summarised,
    over_seeds,
    paired_tables,
    paired_tests,
    untested_over_seeds,
)
from rosewood.comparison.statistics import (
    RANK,
    improvements,
    mean_and_deviation,
    ranks,
    seed_interval,
)
from rosewood.comparison.table import MEANS, WORST, half_width, percent
from rosewood.errors import DataError, RunError, closest
from rosewood.results import Evaluation
from rosewood.results.evaluation import GUESSING_MARK, GUESSING_NOTE
from rosewood.results.grid import Grid

Published = Mapping[str, Mapping[str, float | None]]
"""Method -> column, in one line -> what a paper reports, as a share; None if it is not known."""


def compared(
    runs: Sequence[EvaluatedRun], baseline: str | None = None, published: Published | None = None
) -> list[Grid]:
    """The table of methods, perhaps beside published figures; with a baseline, also differences on equal examples.

    What was not tested, and why, is said below the tables.
    """
    first = tested_table(runs, baseline, published)
    if baseline is None:
        return [first]
    methods = by_method(runs)
    tests = paired_tests(methods, baseline)
    missing = untested_note(tests.untested, [method for method in methods if method != baseline])
    if tests.differences:
        *pairs, last = paired_tables(tests, baseline)
        return [first, *pairs, _with(last, missing)]
    return [first if judged_over_seeds(methods) else _with(first, missing)]


def tested_table(runs: Sequence[EvaluatedRun], baseline: str | None = None, published: Published | None = None) -> Grid:
    """The table of methods, and what of it was not tested over seeds, where there are several."""
    table, methods = methods_table(runs, baseline, published), by_method(runs)
    if baseline is None or not judged_over_seeds(methods):
        return table
    untested = untested_over_seeds(figures_by_method(methods), baseline)
    return _with(table, untested_note(untested, [method for method in methods if method != baseline]))


def _with(grid: Grid, remark: str) -> Grid:
    return replace(grid, caption=f"{grid.caption} {remark}".strip())


def judged_over_seeds(methods: Mapping[str, Sequence[EvaluatedRun]]) -> bool:
    """Whether some method has several runs on a task; single runs are judged on the same examples."""
    return any(len(runs) > len({run.evaluation.task for run in runs}) for runs in methods.values())


def methods_table(
    runs: Sequence[EvaluatedRun], baseline: str | None = None, published: Published | None = None
) -> Grid:
    """One row per method: its figures over seeds, marked where they are better than the baseline's."""
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
        [method, *(_interval(column, list(values[method].get(column, {}).values())) for column in columns)]
        for method in methods
    ]
    return Grid(
        f"{_title(methods)}, 95 % intervals of the means",
        ["method", *(_heading(some, column, methods) for column in columns)],
        rows,
        "In %, by Student's t over seeds, limited to what the figure can be. -: fewer than three seeds, or no "
        "difference between them.",
    )


def _interval(column: str, figures: Sequence[Figure]) -> str:
    interval = seed_interval([each.value for each in figures], bounds_of(column)) if figures else None
    return "-" if interval is None else " to ".join(map(percent, interval))


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
    seeds = {method: _seeds(runs) for method, runs in methods.items()}
    first = ["method", "seeds"] if any(seeds.values()) else ["method"]  # checkpoints do not say their seeds
    rows = []
    for method, runs in methods.items():
        found = {column: list(values[method].get(column, {}).values()) for column in columns}
        cells = [
            _cell(figures) + _guessing(figures) + marks.get((method, column), "") + _fewer_seeds(column, figures, runs)
            for column, figures in found.items()
        ]
        others = [f"{improved[method][name]:.1f}" if name in improved[method] else "-" for name in extra]
        begin = [method, str(seeds[method] or "-")][: len(first)]
        rows.append([*begin, *cells, *others, *([_rank(ranked.get(method))] if ranked else [])])
    some = next(iter(methods.values()))[0].evaluation
    header = [*first, *(_heading(some, column, methods) for column in columns), *extra]
    keys = ["" for _ in first] + [*map(one_line, [*columns, *extra])]
    if ranked:
        header, keys = [*header, RANK], [*keys, RANK]
    grid = Grid(_title(methods), header, rows, _caption(methods, columns, baseline, marks, values))
    return _beside(grid, keys, published) if published else grid


def _columns(values: Figures) -> list[str]:
    """Those of all methods: what was measured, then worst groups and their gaps, then summaries."""
    columns = dict.fromkeys(column for found in values.values() for column in found)
    return sorted(columns, key=lambda column: (column in SUMMARIES, column.startswith((WORST_GROUP, GAP))))


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
    caption = f"{grid.caption} Paper: as published; unknown: not reported, or not available."
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
    """How many seeds a summary is made from, if some seeds lack tasks."""
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
    values: Figures,
) -> str:
    parts = ["In %: mean ± standard deviation over seeds; of a single run ± half the width of the 95 % interval."]
    if any(column.startswith(WORST_GROUP) for column in columns):
        parts.append(WORST)
    if set(SUMMARIES) <= set(columns):
        parts.append(
            "Mean: of clean and adversarial accuracy. Drop: from clean to adversarial accuracy. Both are over the "
            "tasks that all methods have."
        )
    lacking = sorted({name for runs in methods.values() for run in runs for name in _lacking(run.evaluation)})
    if lacking:
        parts.append(f"Missing, and so not in the means: {', '.join(lacking)}.")
    parts += dict.fromkeys(run.left_out for each in methods.values() for run in each if run.left_out)
    if any(_guessing(list(each.values())) for found in values.values() for each in found.values()):
        parts.append(
            f"{GUESSING_NOTE} With several seeds: in at least one. Such methods are not tested and have no rank."
        )
    runs = [run for each in methods.values() for run in each]
    parts += dict.fromkeys(f"{each.name} on {each.of}: {each.apart}." for each in attacked(runs) if each.apart)
    if baseline is not None and marks:
        parts.append(
            f"*: better than {baseline}, p < {LEVEL} (Welch's one-tailed t-test over seeds, Holm-adjusted; not tested: "
            "worst groups, gaps, and figures that are the same in all seeds)."
        )
    elif baseline is not None:
        parts.append("No test over seeds: it needs two seeds or more of each method, with different results.")
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


def _guessing(figures: Sequence[Figure]) -> str:
    return f" {GUESSING_MARK}" if any(each.guessing for each in figures) else ""


def _rank(rank: float | None) -> str:
    return "-" if rank is None else f"{rank:.1f}"


def _seeds(runs: Sequence[EvaluatedRun]) -> int:
    return len({run.seed for run in runs} - {None})


def _marks(values: Figures, baseline: str) -> dict[tuple[str, str], str]:
    """Marks of the cells that are significantly better than the baseline's."""
    return {cell: "*" if test.adjusted < LEVEL else "" for cell, test in over_seeds(values, baseline).items()}
