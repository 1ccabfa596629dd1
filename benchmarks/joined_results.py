"""Results of one experiment whose tasks have run apart, joined where the cells of some are gone.

Cells are told by their names, which hold the fingerprint of their settings and data: figures that were kept are of the
same cells that would run now, or nothing is joined.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from rosewood.comparison.methods import SUMMARIES, Figure, bounds_of, mean_of, over_seeds
from rosewood.comparison.statistics import glue_aggregates, mean_and_deviation
from rosewood.results import ComparedCell, ComparedFigure, Comparison, MatchedMoment

ADVERSARIAL = "advglue_"
UNTESTED = ("worst group ", "gap ")

Placed = TypeVar("Placed", ComparedCell, MatchedMoment)
Place = tuple[str, str, str, int]


def joined(kept: Comparison, new: Comparison) -> Comparison:
    """The finished tasks of the new one, and the others as they were kept; summaries and tests are of all of them."""
    if other := {each.name for each in kept.cells} ^ {each.name for each in new.cells}:
        raise SystemExit(
            f"{len(other)} cells are in one of the two results alone, such as {min(other)}: settings or data have "
            "changed since figures were kept. Expected two results of the same cells; run all of them again."
        )
    taken = {each.task for each in new.cells} - {each.task for each in new.cells if each.state != "finished"}
    cells, moments = _by_place(kept.cells, new.cells, taken), _by_place(kept.matched, new.matched, taken)
    places = [_place(each) for each in kept.cells]
    return kept.model_copy(
        update={
            "cells": [cells[place] for place in places],
            "figures": _joined_figures(kept, kept.figures, new.figures, taken),
            "matched": [moments[place] for place in places if place in moments],
            "matched_figures": _joined_figures(kept, kept.matched_figures, new.matched_figures, taken),
        }
    )


def _by_place(kept: Sequence[Placed], new: Sequence[Placed], taken: set[str]) -> dict[Place, Placed]:
    found = {_place(each): each for each in kept if each.task not in taken}
    return found | {_place(each): each for each in new if each.task in taken}


def _place(each: ComparedCell | MatchedMoment) -> Place:
    return each.label, each.task, each.model, each.seed


def _joined_figures(
    order: Comparison, kept: Sequence[ComparedFigure], new: Sequence[ComparedFigure], taken: set[str]
) -> list[ComparedFigure]:
    tasks = list(dict.fromkeys(each.task for each in order.cells))
    of_tasks = [each for each in kept if each.figure not in SUMMARIES and _task(each) not in taken]
    of_tasks += [each for each in new if each.figure not in SUMMARIES and _task(each) in taken]
    of_tasks.sort(key=lambda each: tasks.index(_task(each)))
    by_label = {label: [each for each in of_tasks if each.label == label] for label in _labels(order)}
    shared = [task for task in tasks if all(task in map(_task, ours) for ours in by_label.values())]
    found: list[ComparedFigure] = []
    for label, ours in by_label.items():
        published = {each.figure: each.published for each in [*kept, *new] if each.label == label}
        found += [*ours, *_summaries(ours, shared, published)]
    if order.baseline is None or not by_label.get(order.baseline):
        return found
    return _tested(found, order.baseline)


def _labels(comparison: Comparison) -> list[str]:
    return list(dict.fromkeys(each.label for each in comparison.cells))


def _task(figure: ComparedFigure) -> str:
    """The task whose test rows, groups or AdvGLUE set it is of."""
    return figure.figure.split()[-1].removeprefix(ADVERSARIAL)


def _summaries(
    figures: Sequence[ComparedFigure], tasks: Sequence[str], published: dict[str, float | None]
) -> Iterator[ComparedFigure]:
    """Mean and drop over the tasks that all methods have, of the seeds that have them all."""
    values = {each.figure: each.values for each in figures}
    clean = {task: values.get(task, {}) for task in tasks}
    adversarial = {task: values.get(ADVERSARIAL + task, {}) for task in tasks}
    seeds = sorted(set.intersection(*map(set, [*clean.values(), *adversarial.values()]))) if tasks else []
    by_seed = {
        seed: glue_aggregates(*({task: side[task][seed] for task in tasks} for side in (clean, adversarial)))
        for seed in seeds
    }
    for place, name in enumerate(SUMMARIES if seeds else ()):
        found = {seed: float(each[place]) for seed, each in by_seed.items()}
        mean, deviation = mean_and_deviation(list(found.values()))
        yield figures[0].model_copy(
            update={
                "figure": name,
                "values": found,
                "mean": mean,
                "deviation": None if len(seeds) == 1 else deviation,
                "interval": mean_of(list(map(Figure, found.values())), bounds_of(name)).interval,
                "published": published.get(name),
            }
        )


def _tested(figures: Sequence[ComparedFigure], baseline: str) -> list[ComparedFigure]:
    """The figures with p-values against the baseline, adjusted for all of them."""
    values: dict[str, dict[str, dict[int | None, Figure]]] = {}
    for each in figures:
        if not each.figure.startswith(UNTESTED):
            values.setdefault(each.label, {})[each.figure] = {
                seed: Figure(value, guessing=seed in each.guessing) for seed, value in each.values.items()
            }
    tests = over_seeds(values, baseline)
    adjusted = {cell: {"p": test.p, "p_adjusted": test.adjusted} for cell, test in tests.items()}
    untested = {"p": None, "p_adjusted": None}
    return [each.model_copy(update=adjusted.get((each.label, each.figure), untested)) for each in figures]
