"""From finished cells to tables: figures over seeds, tested against a baseline, beside what a paper reports."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rosewood.comparison import matched_accuracy
from rosewood.comparison.methods import Published, compared, intervals_table, methods_table, one_line, tested_table
from rosewood.comparison.runs import EvaluatedRun, by_method, check_comparable, kept_attacks
from rosewood.comparison.significance import (
    Figure,
    OverSeeds,
    bounds_of,
    figures_by_method,
    figures_of,
    mean_of,
    over_seeds,
)
from rosewood.comparison.statistics import RANK, improvements, mean_and_deviation, ranks
from rosewood.experiments.cell import RUN, CellStatus
from rosewood.experiments.experiment import Experiment
from rosewood.results import CellResult, ComparedCell, ComparedFigure, Comparison, MatchedMoment, write
from rosewood.results.grid import Grid, to_csv, to_latex, to_markdown

if TYPE_CHECKING:
    from rosewood.report.sections import Section

RESULTS, MARKDOWN, LATEX, CSV, MOMENTS = "results.json", "table.md", "table.tex", "table.csv", "moments.csv"
REPORT = "report.html"


class Group(NamedTuple):
    """Cells that share a table: those of one model on one suite, or on one task."""

    model: str
    on: str
    runs: list[EvaluatedRun]


def grids_of(experiment: Experiment, statuses: Sequence[CellStatus]) -> list[Grid]:
    """The tables of all groups, and one of the cells that failed."""
    found = []
    for group in _groups(statuses):
        several = len({run.seed for run in group.runs}) > 1
        facts = (group.runs, _baseline(experiment, group), _published(experiment, group))
        # Single runs against each other: better than nothing where there is one seed, too long where there are more.
        for grid in [tested_table(*facts), intervals_table(group.runs)] if several else compared(*facts):
            of = "" if len(experiment.models) == 1 else f", {group.model}"
            found.append(replace(grid, title=grid.title + of))
    return [*found, *_matched_grids(experiment, statuses), *_failed_grids(statuses)]


def _failed_grids(statuses: Sequence[CellStatus]) -> list[Grid]:
    failed = [[each.folder.name, each.error or ""] for each in statuses if each.state == "failed"]
    return [Grid("Cells that failed", ["cell", "error"], failed, texts=2)] if failed else []


def _matched_grids(experiment: Experiment, statuses: Sequence[CellStatus]) -> list[Grid]:
    """The same tables at matched clean accuracy, and one of the moments, where runs were measured as they trained."""
    at_match, moments = _at_match(statuses)
    if not moments:
        return []
    tables = []
    for group in _groups(at_match, with_attacks=False):
        grid = methods_table(group.runs, _baseline(experiment, group))
        of = "" if len(experiment.models) == 1 else f", {group.model}"
        tables.append(replace(grid, title=f"{grid.title} at matched clean accuracy{of}"))
    return [*tables, matched_accuracy.grid_of(moments)]


def _at_match(statuses: Sequence[CellStatus]) -> tuple[list[CellStatus], list[MatchedMoment]]:
    """Finished cells as they were at matched clean accuracy, and which moments those are."""
    found = matched_accuracy.matched([each.result for each in statuses if each.result is not None])
    pairs = [(each, each.result) for each in statuses if each.result and each.result.fingerprint in found]
    return (
        [replace(each, result=matched_accuracy.at_match(result, found[result.fingerprint])) for each, result in pairs],
        [matched_accuracy.described(result, found[result.fingerprint]) for _, result in pairs],
    )


def comparison_of(experiment: Experiment, statuses: Sequence[CellStatus]) -> Comparison:
    """All figures and the state of every cell, as data."""
    at_match, moments = _at_match(statuses)
    unpublished = experiment.model_copy(update={"published": {}})  # papers report the end of training
    return Comparison(
        experiment=experiment.name,
        baseline=experiment.baseline,
        figures=[figure for group in _groups(statuses) for figure in _figures(experiment, group)],
        cells=[
            ComparedCell(
                name=each.folder.name,
                label=each.cell.label,
                task=each.cell.task["name"],
                model=each.cell.model,
                seed=each.cell.seed,
                state=each.state,
                error=each.error,
            )
            for each in statuses
        ],
        matched=moments,
        matched_figures=[figure for group in _groups(at_match, False) for figure in _figures(unpublished, group)],
    )


def save_tables(
    experiment: Experiment, statuses: Sequence[CellStatus], output: Path, file: Path | None = None
) -> Comparison:
    """Write results.json, the tables, moments.csv if there are moments, and report.html if a cell is finished.

    `file` is where the experiment comes from, for those who want to repeat it.
    """
    comparison, grids = comparison_of(experiment, statuses), grids_of(experiment, statuses)
    comparison.save(output / RESULTS)
    notes = ["\n".join(f"- {one_line(note)}" for note in experiment.notes)] if experiment.notes else []
    parts = [f"# {experiment.title or experiment.name}", *notes, *map(to_markdown, grids)]
    write(output / MARKDOWN, "\n\n".join(parts) + "\n")
    write(output / LATEX, "\n\n".join(map(to_latex, grids)) + "\n")
    write(output / CSV, _csv(comparison.figures))
    if comparison.matched:
        write(output / MOMENTS, moments_csv([each.result for each in statuses if each.result is not None]))
    _save_report(experiment, statuses, output / REPORT, str(file or experiment.name))
    return comparison


def _save_report(experiment: Experiment, statuses: Sequence[CellStatus], path: Path, file: str) -> None:
    from rosewood.report.page import write_report  # plotly takes a while to import
    from rosewood.report.subject import short_name, subject_of

    subjects = [
        subject_of(
            group.runs,
            _baseline(experiment, group),
            _published(experiment, group),
            f"{group.on}, {short_name(group.model)}",
            experiment=file,
        )
        for group in _groups(statuses)
    ]
    if subjects:
        title, closing = experiment.title or experiment.name, _closing(experiment, statuses)
        write_report(subjects, path, title, experiment.notes, closing)


def _closing(experiment: Experiment, statuses: Sequence[CellStatus]) -> list[Section]:
    """What a report has of an experiment beside the runs as they ended."""
    from rosewood.report.sections import Section, Table

    found = [
        (
            "At matched clean accuracy",
            "All of the above, the verdict included, is of the ends of training, after equal steps. Here a method is "
            "taken at its first measured moment that reaches the lowest final validation accuracy of all methods, so "
            "that one that has learnt less does not look robust for that alone. Attacks are made at the end only.",
            _matched_grids(experiment, statuses),
        ),
        ("Cells that failed", "They are in no table and no chart above.", _failed_grids(statuses)),
    ]
    return [Section(title, [Table(grid, titled=True) for grid in grids], lead) for title, lead, grids in found if grids]


def _groups(statuses: Sequence[CellStatus], with_attacks: bool = True) -> list[Group]:
    """What may share a table; attacks are those on the weights of the end."""
    groups: dict[tuple[str, str], Group] = {}
    for each in statuses:
        if each.result is not None:
            evaluation = each.result.evaluation
            key = each.cell.model, evaluation.suite or evaluation.task
            groups.setdefault(key, Group(*key, [])).runs.append(_run(each, each.result, with_attacks))
    for group in groups.values():
        check_comparable(group.runs)
    return list(groups.values())


def _run(found: CellStatus, result: CellResult, with_attacks: bool) -> EvaluatedRun:
    folder = found.folder / RUN
    return EvaluatedRun(
        folder,
        result.label,
        result.seed,
        result.evaluation,
        inconsistency=result.inconsistency,
        attacks=kept_attacks(folder) if with_attacks else (),
    )


def _baseline(experiment: Experiment, group: Group) -> str | None:
    """The baseline, where it has finished cells in this table and is not alone in it."""
    labels = {run.method for run in group.runs}
    return experiment.baseline if experiment.baseline in labels and len(labels) > 1 else None


def _published(experiment: Experiment, group: Group) -> Published:
    """What a paper reports on the tasks of a group, or on its suite, as shares."""
    places = {group.on, *(run.evaluation.task for run in group.runs)}
    return {
        label: {
            figure: None if value is None else value / 100
            for place, figures in found.items()
            if place in places
            for figure, value in figures.items()
        }
        for label, found in experiment.published.items()
    }


def _figures(experiment: Experiment, group: Group) -> list[ComparedFigure]:
    methods = by_method(group.runs)
    values = figures_by_method(methods)
    baseline, published = _baseline(experiment, group), _published(experiment, group)
    tests = {} if baseline is None else over_seeds(values, baseline)
    of_seeds = [
        _figure(group, label, column, seeds, tests.get((label, column)), published.get(label, {}).get(one_line(column)))
        for label, columns in values.items()
        for column, seeds in columns.items()
    ]
    return [*of_seeds, *_of_methods(group, methods, baseline, published)]


def _of_methods(
    group: Group, methods: Mapping[str, Sequence[EvaluatedRun]], baseline: str | None, published: Published
) -> Iterator[ComparedFigure]:
    """What a method has as a whole and no seed of it: RoAST's improvement and rank."""
    ranked = {method: {RANK: rank} for method, rank in ranks(methods).items()}
    improved = {
        method: {column: value / 100 for column, value in found.items()}
        for method, found in improvements(methods, baseline).items()
    }
    for label in methods:
        for column, value in (improved[label] | ranked.get(label, {})).items():
            name = one_line(column)
            known = published.get(label, {}).get(name)
            yield ComparedFigure(
                model=group.model,
                on=group.on,
                label=label,
                figure=name,
                values={},
                mean=value,
                deviation=None,
                interval=None,
                published=100 * known if known is not None and name == RANK else known,  # a rank is not a share
            )


def _figure(
    group: Group,
    label: str,
    column: str,
    seeds: Mapping[int | None, Figure],
    test: OverSeeds | None,
    published: float | None,
) -> ComparedFigure:
    mean, deviation = mean_and_deviation([each.value for each in seeds.values()])
    return ComparedFigure(
        model=group.model,
        on=group.on,
        label=label,
        figure=one_line(column),
        values={seed: each.value for seed, each in seeds.items() if seed is not None},  # a cell always has one
        mean=mean,
        deviation=None if math.isnan(deviation) else deviation,
        interval=mean_of(list(seeds.values()), bounds_of(column)).interval,
        p=test and test.p,
        p_adjusted=test and test.adjusted,
        published=published,
        guessing=[seed for seed, each in seeds.items() if each.guessing and seed is not None],
    )


def _csv(figures: Sequence[ComparedFigure]) -> str:
    """One row per figure, shares as they are; what is of a method as a whole has 0 seeds."""
    rows = []
    for each in figures:
        ends = each.interval or (None, None)
        facts = [each.model, each.on, each.label, each.figure, len(each.values), each.mean, each.deviation]
        rows.append([*facts, *ends, each.p, each.p_adjusted, each.published])
    measured = ("seeds", "mean", "deviation", "low", "high", "p", "p_adjusted", "published")
    return to_csv(["model", "on", "label", "figure", *measured], rows)


def moments_csv(results: Sequence[CellResult]) -> str:
    """One row per cell, moment and figure: how a run went; accuracies are shares, of distance see `Moment`."""
    rows = []
    for result in results:
        for moment in result.moments:
            place = [result.model, result.task, result.label, result.seed, moment.step]
            figures = {one_line(column): figure.value for column, figure in figures_of(moment.evaluation)}
            known = {"validation": moment.validation_accuracy, "distance": moment.distance} | figures
            rows += [[*place, name, value] for name, value in known.items() if value is not None]
    return to_csv(["model", "task", "label", "seed", "step", "figure", "value"], rows)
