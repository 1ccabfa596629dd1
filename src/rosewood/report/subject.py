"""What a report is about: runs that compare, and everything that their folders hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from rosewood.comparison.attacks import attacked
from rosewood.comparison.compare import Published, check_baseline
from rosewood.comparison.runs import EvaluatedRun, by_method
from rosewood.comparison.table import grids
from rosewood.data.tasks import load_task
from rosewood.dynamics.record import Seen
from rosewood.errors import RunError
from rosewood.lab.landscape import Landscape
from rosewood.lab.losses import PRETRAINED, run_names
from rosewood.report.figures.evaluation import Methods
from rosewood.report.figures.style import Mark, mark
from rosewood.results import AttackSummary, RunInfo
from rosewood.results.grid import Grid
from rosewood.results.run import Curve, training_history

BASELINE = "vanilla"
"""What runs are compared with where nothing else is named."""


@dataclass(frozen=True)
class ReportedRun:
    """An evaluated run with what else its folder tells."""

    name: str
    evaluated: EvaluatedRun
    info: RunInfo | None
    recipe: str | None
    """Its YAML file."""
    labels: Sequence[str]
    history: dict[str, Curve]

    @property
    def model(self) -> str:
        """The pre-trained model, without the folders of its author."""
        return "" if self.info is None else short_name(self.info.model)

    @property
    def method(self) -> str:
        """The recipe, or what an experiment calls it."""
        return self.evaluated.method


@dataclass(frozen=True)
class Subject:
    """Runs in one comparison; `baseline` is the method that the others are tested against."""

    title: str
    runs: Sequence[ReportedRun]
    baseline: str | None = None
    published: Published = field(default_factory=dict)
    landscapes: Sequence[Landscape] = ()
    experiment: str | None = None
    """The file of the experiment whose cells the runs are, or its name."""

    @cached_property
    def by_method(self) -> dict[str, list[EvaluatedRun]]:
        """The runs of each method."""
        return by_method([run.evaluated for run in self.runs])

    @cached_property
    def methods(self) -> Methods:
        """The evaluations of each method, as figures take them."""
        return {method: [run.evaluation for run in runs] for method, runs in self.by_method.items()}

    @cached_property
    def tables(self) -> dict[str, Grid]:
        """The tables of the evaluation by title, a column or row for each run."""
        return {grid.title: grid for grid in grids({run.name: run.evaluated.evaluation for run in self.runs})}

    @cached_property
    def attacked(self) -> dict[str, dict[str, list[AttackSummary]]]:
        """Attack -> method -> what it came to in each of its runs."""
        found: dict[str, dict[str, list[AttackSummary]]] = {}
        for each in attacked([run.evaluated for run in self.runs]):
            found.setdefault(each.title, {}).setdefault(each.run.method, []).append(each.summary)
        return found

    def place(self, method: str) -> int:
        """Which of the methods this is: it decides the colour."""
        return list(self.methods).index(method)

    def watched(self, kind: type[Seen]) -> list[ReportedRun]:
        """The runs with such records of their training; a file may be there and empty, if the run was too short."""
        return [run for run in self.runs if (path := kind.path(run.evaluated.folder)).exists() and path.stat().st_size]

    @property
    def marks(self) -> dict[str, Mark]:
        """How each method looks in charts."""
        return {method: mark(place) for place, method in enumerate(self.methods)}


def short_name(model: str) -> str:
    """A name on the Hub as it is, of a folder the last part."""
    return Path(model).name if Path(model).is_absolute() else model


def subject_of(
    runs: Sequence[EvaluatedRun],
    baseline: str | None = None,
    published: Published | None = None,
    title: str | None = None,
    landscape: Path | None = None,
    experiment: str | None = None,
) -> Subject:
    """Read the folders of runs that were evaluated alike; plain fine-tuning is the baseline if none is named.

    `landscape` is a folder that `rosewood landscape` wrote for some of them.
    """
    methods = by_method(runs)
    check_baseline(baseline, methods)
    if baseline is None and BASELINE in methods and len(methods) > 1:
        baseline = BASELINE
    first = runs[0].evaluation
    on = f"the suite {first.suite}" if first.suite else first.task
    reported = _read(runs)
    folders = {run.name: run.evaluated.folder for run in reported}
    landscapes = [] if landscape is None else read_landscapes(landscape, folders)
    return Subject(title or f"Robustness on {on}", reported, baseline, published or {}, landscapes, experiment)


def _read(runs: Sequence[EvaluatedRun]) -> list[ReportedRun]:
    found = []
    for run in runs:
        info, recipe, task = (run.folder / name for name in ("run.json", "recipe.yaml", "task.yaml"))
        found.append(
            ReportedRun(
                _name(run, runs),
                run,
                RunInfo.load(info) if info.exists() else None,
                recipe.read_text(encoding="utf-8", errors="replace") if recipe.exists() else None,
                load_task(task).labels if task.exists() else [],
                training_history(run.folder / "history.jsonl"),
            )
        )
    return found


def _name(run: EvaluatedRun, runs: Sequence[EvaluatedRun]) -> str:
    """The method, with what tells it from its other runs."""
    same = [each for each in runs if each.method == run.method]
    tasks, seeds = {each.evaluation.task for each in same}, {each.seed for each in same}
    parts = [run.method]
    parts += [run.evaluation.task] if len(tasks) > 1 else []
    parts += [f"seed {run.seed}"] if len(seeds) > 1 else []
    return ", ".join(parts)


def read_landscapes(folder: Path, runs: Mapping[str, Path]) -> list[Landscape]:
    """That of the pre-trained model first, if it is there, then those of runs (name -> folder) under their names."""
    names = {PRETRAINED: PRETRAINED} | dict(zip(run_names(list(runs.values())), runs, strict=True))
    files = {folder / f"{file}.json": name for file, name in names.items()}
    found = [Landscape.load(path).model_copy(update={"name": name}) for path, name in files.items() if path.exists()]
    if all(each.name == PRETRAINED for each in found):
        wanted = ", ".join(path.name for path, name in files.items() if name != PRETRAINED)
        raise RunError(
            f"{folder} has no landscape of these runs (expected {wanted}): "
            f"compute them with rosewood landscape RUN ... --output {folder}"
        )
    _check_alike(found, folder)
    return found


def _check_alike(landscapes: Sequence[Landscape], folder: Path) -> None:
    """They can be compared only if directions, distances, examples and the bound of basins are the same."""
    first = landscapes[0]
    for each in landscapes[1:]:
        theirs = _settings(each)
        for what, own in _settings(first).items():
            if theirs[what] != own:
                raise RunError(
                    f"the landscapes in {folder} do not compare: {first.name} and {each.name} differ in {what}. "
                    "Compute all of them with one rosewood landscape."
                )


def _settings(landscape: Landscape) -> dict[str, object]:
    plain = {what: getattr(landscape, what) for what in ("data", "coordinates", "seed", "normalisation")}
    return plain | {"threshold": landscape.sharpness.threshold}
