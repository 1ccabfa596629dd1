"""Tables of the labels: precision, recall and F1 of each, and which label is taken for which."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rosewood.results import ClassResult, Evaluation, SetResult
from rosewood.results.grid import Grid

CAPTION = (
    "In %: precision / recall / F1 of each label. Macro F1: the mean F1 of the labels that occur; micro F1: of all "
    "labels together; -: there is nothing to divide by."
)


def class_grids(evaluations: Mapping[str, Evaluation]) -> list[Grid]:
    """Of the clean sets: a table of all labels, and a confusion matrix for each model, if a text has one label."""
    grids = [classes_grid(evaluations), *confusion_grids(evaluations)]
    return [grid for grid in grids if grid.rows]


def classes_grid(evaluations: Mapping[str, Evaluation]) -> Grid:
    """A row for each label of each clean set, a column for each model."""
    found = {model: {each.name: each for each in _clean(evaluation)} for model, evaluation in evaluations.items()}
    rows = []
    for name in dict.fromkeys(name for sets in found.values() for name in sets):
        sets = [by_name.get(name) for by_name in found.values()]
        some = next(each for each in sets if each)
        for place, one in enumerate(some.classes):
            cells = [_cell(each.classes[place]) if each else "missing" for each in sets]
            rows.append([name, one.label, str(one.examples), *cells])
        macro, micro = ([_percent(getattr(each, f1, None)) for each in sets] for f1 in ("macro_f1", "micro_f1"))
        rows.append([name, "macro F1", str(some.examples), *macro])
        if some.micro_f1 is not None:
            rows.append([name, "micro F1", str(some.examples), *micro])
    return Grid("Classes", ["set", "label", "examples", *evaluations], rows, CAPTION, texts=2)


def confusion_grids(evaluations: Mapping[str, Evaluation]) -> Iterator[Grid]:
    """A matrix for each model and clean set."""
    for model, evaluation in evaluations.items():
        for each in _clean(evaluation):
            names = [one.label for one in each.classes]
            rows = [[name, *map(str, counts)] for name, counts in zip(names, each.confusion, strict=False)]
            caption = "A row for each label, a column for each prediction; the diagonal is right."
            yield Grid(f"Confusion of {model} on {each.name}", ["label", *names], rows, caption)


def _clean(evaluation: Evaluation) -> list[SetResult]:
    return [each for each in evaluation.sets if each.role == "clean" and each.classes]


def _cell(one: ClassResult) -> str:
    return " / ".join(map(_percent, (one.precision, one.recall, one.f1)))


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"
