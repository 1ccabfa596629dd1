"""What a report is about: runs that compare, everything that their folders hold, and a verdict in one sentence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean

from rosewood.comparison.attack_tables import UNDER, attacked
from rosewood.comparison.methods import Published, check_baseline, judged_over_seeds, one_line
from rosewood.comparison.runs import EvaluatedRun, by_method, untested_note
from rosewood.comparison.significance import (
    LEVEL,
    by_kind,
    figures_by_method,
    over_seeds,
    paired_tests,
    untested_over_seeds,
)
from rosewood.comparison.table import MEANS, grids, percent
from rosewood.data.tasks import load_task
from rosewood.dynamics.record import Seen
from rosewood.errors import RunError
from rosewood.lab.landscape import Landscape
from rosewood.lab.losses import PRETRAINED, run_names
from rosewood.report.figures.evaluation import Methods, role_accuracies
from rosewood.report.figures.style import Mark, mark
from rosewood.results import AttackSummary, Role, RunInfo
from rosewood.results.evaluation import is_guessing
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
    """What a report shows of runs that were evaluated alike.

    Args:
        runs: what `load_runs` gives.
        baseline: the recipe that the others are tested against; by default `vanilla`, if it is among them.
        published: what papers report: recipe -> figure -> share.
        title: the title of the report.
        landscape: a folder that `rosewood landscape` wrote for some of the runs.
        experiment: the file of the experiment that the runs belong to.

    Returns:
        The runs with their recipes, histories and landscapes, for `write_report`.

    Raises:
        RunError: no run has the baseline's recipe, or a file of a run is damaged.

    Example:
        >>> from rosewood.report import load_runs
        >>> subject_of(load_runs(["runs/rose"]), title="Reviews").title
        'Reviews'
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


Found = Mapping[str, Sequence[str]]
"""Method -> what it differs from the baseline on."""
_KINDS: dict[Role, str] = {"clean": "clean", "shift": "shifted", "adversarial": "adversarial", "noise": "noisy"}


@dataclass(frozen=True)
class ComparisonVerdict:
    """What the tests say, and what a reader must know beside it."""

    shown: str
    untested: str
    """What was not tested, and why; the tables of the comparison say it too."""
    remarks: Sequence[str]

    @property
    def sentence(self) -> str:
        """What the tests say, and what was not tested."""
        return f"{self.shown} {self.untested}".strip()


def verdict(subject: Subject) -> ComparisonVerdict:
    """What the comparison shows, by its tests and no further."""
    return ComparisonVerdict(*_by_tests(subject), list(_remarks(subject)))


def _by_tests(subject: Subject) -> tuple[str, str]:
    """What the tests say, and what was not tested."""
    others = [method for method in subject.methods if method != subject.baseline]
    if len(subject.methods) == 1:
        return f"{right_on(subject, *subject.methods)}; there is no other method here to compare it with.", ""
    if subject.baseline is None:
        return f"{_listed(others)} are shown side by side; without --baseline no difference between them is tested.", ""
    if judged_over_seeds(subject.by_method):
        return _over_seeds(subject, subject.baseline, others)
    return _on_examples(subject, subject.baseline, others)


def at_guessing(subject: Subject) -> list[str]:
    """The methods with a run that has not learnt its task, in words."""
    found = []
    for method, evaluations in subject.methods.items():
        tasks = dict.fromkeys(each.task for each in evaluations if is_guessing(each))
        runs = sum(map(is_guessing, evaluations))
        if tasks:
            some = "" if runs == len(evaluations) else f" in {runs} of {len(evaluations)} runs"
            found.append(f"{method} is at guessing{some} ({', '.join(tasks)})")
    return found


def right_on(subject: Subject, method: str) -> str:
    """On how much of each kind of text a method is right."""
    by_role: dict[Role, dict[str, list[float]]] = {}
    for evaluation in subject.methods[method]:
        for role, accuracy in role_accuracies(evaluation):
            by_role.setdefault(role, {}).setdefault(evaluation.task, []).append(accuracy.value)
    shares = [
        f"{percent(fmean(map(fmean, tasks.values())))}\u00a0% of {_KINDS[role]}" for role, tasks in by_role.items()
    ]
    return f"{method} is right on {_listed(shares)} text" if shares else f"{method} was evaluated on no labelled text"


def _over_seeds(subject: Subject, baseline: str, others: Sequence[str]) -> tuple[str, str]:
    values = figures_by_method(subject.by_method)
    tests = over_seeds(values, baseline)
    untested = untested_note(untested_over_seeds(values, baseline), others)
    if not tests:
        return f"No difference from {baseline} can be tested.", untested
    # The table's tests are one-tailed; that a method is worse is the other tail, adjusted on its own.
    worse = over_seeds(values, baseline, worse=True)
    better_on: dict[str, list[str]] = {}
    worse_on: dict[str, list[str]] = {}
    for (method, column), test in tests.items():
        name = one_line(MEANS.get(column, column))
        if test.adjusted < LEVEL:
            better_on.setdefault(method, []).append(name)
        if worse[method, column].adjusted < LEVEL:
            worse_on.setdefault(method, []).append(name)
    words = f"{_tests(len(tests), 'one-tailed ')} over seeds in either direction"
    tested = [method for method in others if any(method == each for each, _ in tests)]
    return _in_words(baseline, tested, better_on, worse_on, words), untested


def _on_examples(subject: Subject, baseline: str, others: Sequence[str]) -> tuple[str, str]:
    found, missing = paired_tests(subject.by_method, baseline)
    untested = untested_note(missing, others)
    if not found:
        return f"No difference from {baseline} can be tested.", untested
    better_on: dict[str, list[str]] = {}
    worse_on: dict[str, list[str]] = {}
    for each in found:
        if each.adjusted < LEVEL:
            place = better_on if each.change.difference > 0 else worse_on
            place.setdefault(each.method, []).append(each.set)
    tested = [method for method in others if any(method == each.method for each in found)]
    words = f"{_tests(len(found))} on the same examples"
    kinds = f", by kind: {by_kind(found)}"
    return _in_words(baseline, tested, better_on, worse_on, words, kinds), untested


def _tests(number: int, sort: str = "") -> str:
    return f"{number} {sort}{'test' if number == 1 else 'tests'}"


def _in_words(baseline: str, others: Sequence[str], better: Found, worse: Found, tests: str, kinds: str = "") -> str:
    level = f"p < {LEVEL} after Holm's adjustment"
    if not better and not worse:
        who = f"{others[0]} cannot" if len(others) == 1 else "No method can"
        return f"{who} be shown to differ from {baseline}: none of {tests} has {level}{kinds}."
    parts = []
    for method in others:
        signs = [f"better than {baseline} {_where(better[method])}"] if method in better else []
        signs += [f"worse{'' if signs else f' than {baseline}'} {_where(worse[method])}"] if method in worse else []
        if signs:
            parts.append(f"{method} is {' and '.join(signs)}")
    rest = [method for method in others if method not in better and method not in worse]
    if rest:
        parts.append(f"{_listed(rest)} cannot be shown to differ from it")
    return f"{'; '.join(parts)} ({level} of {tests}{kinds})."


def _remarks(subject: Subject) -> Iterable[str]:
    for words in at_guessing(subject):
        yield f"{words}: it has not learnt the task, and what it keeps under noise or attack is not robustness."
    if len(subject.methods) > 1 and not judged_over_seeds(subject.by_method):
        yield "One seed each: another seed could change the picture."
    first = subject.runs[0].evaluated.evaluation
    if first.size is not None:
        yield f"At most {first.size:,} examples of each set were taken."
    lacking = {each.name for run in subject.runs for each in run.evaluated.evaluation.missing if each.counted}
    if lacking:
        yield f"{len(lacking)} {'set is' if len(lacking) == 1 else 'sets are'} missing: {_listed(sorted(lacking))}."


def _where(names: Sequence[str]) -> str:
    """On some sets, and under some attacks."""
    sets = [name for name in names if not name.startswith(UNDER)]
    attacks = [name.removeprefix(UNDER) for name in names if name.startswith(UNDER)]
    on = [f"on {_listed(sets)}"] if sets else []
    return " and ".join([*on, *([f"{UNDER}{_listed(attacks)}"] if attacks else [])])


def _listed(names: Sequence[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last
