"""Bring what the replication of ROSE and its pilot have left into docs/, and write docs/replication.md from that.

python benchmarks/replication_page.py --pilot runs/replication-pilot --results runs/replication

Tasks that a folder has not finished stay as docs/ has them; without either option the page alone is written again. Its
words are in replication_page.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from gains import Gains, gains_at_end, gains_at_match
from joined_results import ADVERSARIAL, joined
from page_tables import markdown, with_interval
from scipy.stats import ttest_1samp

from rosewood.comparison.methods import SUMMARIES
from rosewood.comparison.paired import LEVEL
from rosewood.comparison.statistics import holm
from rosewood.comparison.table import percent
from rosewood.experiments.cell import RESULT, Cell
from rosewood.experiments.experiment import read_experiment
from rosewood.experiments.grid import cells_of
from rosewood.experiments.tables import RESULTS
from rosewood.results import CellResult, ComparedFigure, Comparison, MatchedMoment
from rosewood.results.files import ResultFile
from rosewood.results.grid import Grid, to_markdown

ROOT = Path(__file__).parent.parent
PAGE, KEPT, KEPT_PILOT, KEPT_MOMENTS = (
    "replication.md", "replication.json", "replication-pilot.json", "replication-moments.json",
)  # fmt: skip
WORDS = Path(__file__).with_suffix(".md")
NOT_RUN = "Not run yet."
LEARNT = ("sst2", "qqp", "qnli")
"""Tasks on which vanilla ends above guessing; those that it does not learn would only blur a mean."""
READING = """\
- In %: mean ± standard deviation over seeds. *: better than vanilla, p < 0.05 (Welch's one-tailed t-test over seeds,
  Holm-adjusted for all sets together, and for mean and drop together; worst groups and gaps are not tested).
- Worst group: the lowest accuracy of a group of 20 test rows or more; gap: how far it is below the mean.
- Mean: of the accuracies on test rows and on AdvGLUE, over the tasks that all methods have; drop: how much lower those
  on AdvGLUE are.
- Level: the lowest final validation accuracy of the methods, for each task and seed. A method is taken at its first
  measured moment that reaches it: after so many steps, with this validation accuracy (means over seeds).
- Paper: as published, of RoBERTa base; unknown: not reported, or not available."""
INTERVALS = (
    "Points of accuracy; differences of runs of the same seed, which saw the same rows, with the 95 % interval of "
    "their mean (Student's t, not adjusted for how many there are). p: of a difference on "
    "AdvGLUE as far from zero as this, if there were none (the t-test of pairs, Holm-adjusted for the methods)."
)


class CourseOfTraining(ResultFile):
    """What the page says of the course of training, for which it takes the cells themselves."""

    pairs: dict[str, dict[str, list[str]]]
    """Tasks -> method -> seeds, and its differences from vanilla on clean rows and on AdvGLUE at matched accuracy.

    As the page says them: of three tasks nothing else was kept when their cells were lost.
    """
    step_seconds: dict[str, dict[str, float]]
    """Task -> method -> seconds of a step, of its quickest stretch."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pilot", type=Path, help="what the pilot has written")
    parser.add_argument("--results", type=Path, help="what the replication has written")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs")
    given = parser.parse_args()
    if given.pilot is not None:
        keep_pilot(given.pilot, given.docs)
    if given.results is not None:
        keep(given.results, given.docs)
    (given.docs / PAGE).write_text(page(given.docs), encoding="utf-8")


def keep_pilot(pilot: Path, docs: Path) -> None:
    """Bring a pilot into docs/, unless more of its runs are finished there."""
    new, kept = Comparison.load(pilot / RESULTS), _load(docs / KEPT_PILOT)
    if kept is None or _finished(new) >= _finished(kept):
        new.save(docs / KEPT_PILOT)


def keep(results: Path, docs: Path) -> None:
    """Bring a folder's finished tasks into the figures that the page is made of."""
    new, kept = Comparison.load(results / RESULTS), _load(docs / KEPT)
    comparison = new if kept is None else joined(kept, new)
    measured = [CellResult.load(results / each.name / RESULT) for each in new.cells if each.state == "finished"]
    before = _moments(docs)
    groups = {", ".join(group): _matched_pairs(measured, _methods(new), group) for group in _groups(new)}
    CourseOfTraining(
        pairs=before.pairs | groups, step_seconds=before.step_seconds | _step_seconds(measured, _finished_tasks(new))
    ).save(docs / KEPT_MOMENTS)
    comparison.save(docs / KEPT)


def page(docs: Path, experiments: Path = ROOT / "experiments") -> str:
    """The whole page; parts without results say so."""
    comparison, pilot = _load(docs / KEPT), _load(docs / KEPT_PILOT)
    moments = _moments(docs)
    return WORDS.read_text(encoding="utf-8").format(
        pilot=NOT_RUN if pilot is None else _pilot(pilot),
        settings=_settings(experiments, pilot),
        differences=NOT_RUN if comparison is None else _differences(comparison, moments),
        tables=NOT_RUN if comparison is None else _tables(comparison),
        seconds=_seconds(moments) if moments.step_seconds else NOT_RUN,
    )


def _load(file: Path) -> Comparison | None:
    return Comparison.load(file) if file.exists() else None


def _moments(docs: Path) -> CourseOfTraining:
    file = docs / KEPT_MOMENTS
    return CourseOfTraining.load(file) if file.exists() else CourseOfTraining(pairs={}, step_seconds={})


def _pilot(comparison: Comparison) -> str:
    """Validation accuracy of every setting, one row a task, the best vanilla and the best ROSE in bold."""
    by_task = _validated(comparison)
    labels = list(dict.fromkeys(label for found in by_task.values() for label in found))
    rows = [["task", *labels], ["---", *["---:"] * len(labels)]]
    for task, found in by_task.items():
        best = {_best(found, "vanilla"), _best(found, "rose")}
        rows.append([task, *(_cell(found.get(label), label in best) for label in labels)])
    return f"{_status(comparison)} Validation accuracy in %, one seed.\n\n{markdown(rows)}"


def _validated(comparison: Comparison) -> dict[str, dict[str, float]]:
    """Task -> label -> validation accuracy in the pilot."""
    found: dict[str, dict[str, float]] = {}
    for each in comparison.figures:
        if each.figure == "validation":
            found.setdefault(each.on, {})[each.label] = each.mean
    return found


def _best(found: Mapping[str, float], family: str) -> str:
    """The best of a family; the run that is twice as long is no choice, it shows whether the others have converged."""
    choices = [label for label in found if label.startswith(family) and not label.endswith("twice")]
    return max(choices, key=lambda label: found[label], default="")


def _cell(value: float | None, bold: bool) -> str:
    text = "-" if value is None else f"{100 * value:.1f}"
    return f"**{text}**" if bold else text


class Chosen(NamedTuple):
    """What the pilot decides: learning rate and, for ROSE, the share of tensors that may move."""

    learning_rate: float
    keep_quantile: float | str | None

    @classmethod
    def of(cls, cell: Cell) -> Chosen:
        selection = cell.built_recipe().selection
        return cls(cell.plan().training_arguments()["learning_rate"], getattr(selection, "keep_quantile", None))

    def __str__(self) -> str:
        return f"{self.learning_rate:g}" + ("" if self.keep_quantile is None else f", {self.keep_quantile}")


def _settings(experiments: Path, pilot: Comparison | None) -> str:
    """Learning rate and threshold of every method on every task, and whether they are those that the pilot found."""
    chosen = _chosen(experiments / "replication.yaml")
    tasks = list(dict.fromkeys(task for _, task in chosen))
    rows = [["method", *tasks], ["---", *["---:"] * len(tasks)]]
    for label in dict.fromkeys(label for label, _ in chosen):
        rows.append([label, *(str(chosen[label, task]) for task in tasks)])
    words = "Learning rate and, for ROSE, `keep_quantile`"
    if pilot is None:
        return f"**No pilot has chosen these.** {words}.\n\n{markdown(rows)}"
    found = _found(pilot, _chosen(experiments / "replication-pilot.yaml"))
    other = [f"{label} on {task}" for (label, task), each in chosen.items() if each != found.get(_family(task, each))]
    verdict = f"**Not what the pilot found: {', '.join(other)}.**" if other else "All are what the pilot found."
    return f"{words}. {verdict}\n\n{markdown(rows)}"


def _chosen(experiment: Path) -> dict[tuple[str, str], Chosen]:
    """Method and task -> its settings, equal for all seeds."""
    return {(cell.label, cell.task["name"]): Chosen.of(cell) for cell in cells_of(read_experiment(experiment))}


def _found(pilot: Comparison, tried: Mapping[tuple[str, str], Chosen]) -> dict[tuple[str, str], Chosen]:
    """Task and family -> the settings that were best on validation data."""
    best = {
        (task, family): (_best(found, family), task)
        for task, found in _validated(pilot).items()
        for family in ("vanilla", "rose")
    }
    return {key: tried[choice] for key, choice in best.items() if choice in tried}


def _family(task: str, chosen: Chosen) -> tuple[str, str]:
    return task, "vanilla" if chosen.keep_quantile is None else "rose"


def _differences(comparison: Comparison, moments: CourseOfTraining) -> str:
    """What each method has over vanilla, seed by seed: over the tasks that vanilla learns, and on each other one."""
    parts = [_differences_on(comparison, moments, group) for group in _groups(comparison)]
    return "\n\n".join([INTERVALS, *parts]) if parts else "No task is finished yet."


def _groups(comparison: Comparison) -> list[list[str]]:
    tasks = _finished_tasks(comparison)
    groups = [[task for task in tasks if task in LEARNT], *([task] for task in tasks if task not in LEARNT)]
    return [group for group in groups if group]


def _differences_on(comparison: Comparison, moments: CourseOfTraining, tasks: Sequence[str]) -> str:
    parts = [
        f"**{'Mean over ' if len(tasks) > 1 else ''}{', '.join(tasks)}**",
        "After equal steps, and what the paper's RoBERTa base has on AdvGLUE:",
        _after_equal_steps(comparison.figures, _methods(comparison), tasks),
    ]
    pairs = moments.pairs.get(", ".join(tasks), {})
    rows = [["method", "seeds", "clean", "AdvGLUE"], ["---", *["---:"] * 3]]
    rows += [[label, *found] for label, found in pairs.items()]
    parts += [
        "At matched accuracy, each method with vanilla alone: both at their first measured moment that reaches the "
        "lower of their two final validation accuracies:",
        markdown(rows) if pairs else "Unknown: the cells of these tasks were never at hand together.",
    ]
    return "\n\n".join(parts)


def _methods(comparison: Comparison) -> list[str]:
    return [label for label in dict.fromkeys(cell.label for cell in comparison.cells) if label != "vanilla"]


def _after_equal_steps(figures: Sequence[ComparedFigure], methods: Sequence[str], tasks: Sequence[str]) -> str:
    rows = [["method", "seeds", "clean", "AdvGLUE", "p", "AdvGLUE, paper"], ["---", *["---:"] * 5]]
    gained = {label: _sides(gains_at_end(figures, label, "vanilla"), tasks) for label in methods}
    adjusted = holm({label: p for label, (_, gains) in gained.items() if (p := _p_of_no_gain(gains)) is not None})
    for label, sides in gained.items():
        shown = f"{adjusted[label]:.2f}" if label in adjusted else "-"
        rows.append([label, _seeds(sides), *map(with_interval, sides), shown, _published_gain(figures, label, tasks)])
    return markdown(rows)


def _p_of_no_gain(gains: Sequence[float]) -> float | None:
    """Of the t-test of pairs, two-sided; None where the seeds do not differ."""
    return float(ttest_1samp(gains, 0).pvalue) if len(set(gains)) > 1 else None


def _matched_pairs(results: Sequence[CellResult], methods: Sequence[str], tasks: Sequence[str]) -> dict[str, list[str]]:
    of_tasks = [each for each in results if each.task in tasks]
    sides = {label: _sides(gains_at_match(of_tasks, label, "vanilla"), tasks) for label in methods}
    return {label: [_seeds(found), *map(with_interval, found)] for label, found in sides.items()}


def _sides(gains: Gains, tasks: Sequence[str]) -> list[list[float]]:
    """Points on the tasks' own test rows and on their AdvGLUE sets, of each seed."""
    return [_over_tasks(gains, [prefix + task for task in tasks]) for prefix in ("", ADVERSARIAL)]


def _seeds(sides: Sequence[list[float]]) -> str:
    return str(min(map(len, sides)))


def _published_gain(figures: Sequence[ComparedFigure], label: str, tasks: Sequence[str]) -> str:
    """What the paper's method has over the paper's vanilla, the mean over the AdvGLUE sets."""
    published = {(each.label, each.figure): each.published for each in figures}
    pairs = [
        (published.get((label, ADVERSARIAL + task)), published.get(("vanilla", ADVERSARIAL + task))) for task in tasks
    ]
    gains = [100 * (ours - theirs) for ours, theirs in pairs if ours is not None and theirs is not None]
    return f"{fmean(gains):+.1f}" if len(gains) == len(tasks) else "unknown"


def _finished_tasks(comparison: Comparison) -> list[str]:
    """Those that every method has finished with every seed."""
    unfinished = {cell.task for cell in comparison.cells if cell.state != "finished"}
    return [task for task in dict.fromkeys(cell.task for cell in comparison.cells) if task not in unfinished]


def _over_tasks(gains: Gains, names: Sequence[str]) -> list[float]:
    """The mean over some figures in points, of each seed that has them all."""
    seeds = set.intersection(*(set(gains.get(name, {})) for name in names))
    return [100 * fmean(gains[name][seed] for name in names) for seed in sorted(seeds)]


def _tables(comparison: Comparison) -> str:
    """For the summary and for each task, its figures after equal steps and at matched clean accuracy."""
    tasks = list(dict.fromkeys(cell.task for cell in comparison.cells))
    sets = {f"Over {', '.join(_shared_tasks(comparison))}": list(SUMMARIES)} | {
        f"On {task}": [task, ADVERSARIAL + task, f"worst group {task}", f"gap {task}"] for task in tasks
    }
    grids = [
        grid
        for title, names in sets.items()
        for grid in (
            _at_end(f"{title}, after equal steps", comparison.figures, names),
            _at_match(f"{title}, at matched clean accuracy", comparison, names),
        )
    ]
    return "\n\n".join([_status(comparison), READING, *(to_markdown(grid) for grid in grids if grid.rows)])


def _shared_tasks(comparison: Comparison) -> list[str]:
    """Those that every method has figures of, and that its mean and drop are over."""
    figures = {(each.label, each.figure) for each in comparison.figures}
    labels, tasks = ({getattr(cell, key): None for cell in comparison.cells} for key in ("label", "task"))
    return [task for task in tasks if all((label, task) in figures for label in labels)]


def _at_end(title: str, figures: Sequence[ComparedFigure], names: Sequence[str]) -> Grid:
    """One row a method, each figure beside the paper's if the paper has it."""
    found = {(each.label, each.figure): each for each in figures if each.figure in names}
    published = [name for name in names if any(found[key].published is not None for key in found if key[1] == name)]
    header, rows = ["method", "seeds"], []
    for name in names:
        header += [_heading(name), *(["paper"] if name in published else [])]
    for label in dict.fromkeys(label for label, _ in found):
        ours = [found.get((label, name)) for name in names]
        row = [label, str(max(len(each.values) for each in ours if each is not None))]
        for name, each in zip(names, ours, strict=True):
            row.append(_mean_and_deviation(each))
            if name in published:
                row.append("unknown" if each is None or each.published is None else percent(each.published))
        rows.append(row)
    return Grid(title, header, rows)


def _heading(figure: str) -> str:
    """What a figure is called in the table of its task."""
    if figure in SUMMARIES:
        return figure
    *kind, task = figure.split()
    return " ".join(kind) or ("AdvGLUE" if task.startswith(ADVERSARIAL) else "test rows")


def _at_match(title: str, comparison: Comparison, names: Sequence[str]) -> Grid:
    """One row a method: where it was taken, and its figures there."""
    plain = _at_end(title, comparison.matched_figures, names)
    moments: dict[str, list[MatchedMoment]] = {}
    for each in comparison.matched:
        if each.task == names[0]:
            moments.setdefault(each.label, []).append(each)
    if not moments:
        return plain
    rows = [
        [
            *row[:2],
            percent(fmean(each.level for each in moments[row[0]])),
            percent(fmean(each.validation_accuracy for each in moments[row[0]])),
            f"{fmean(each.step for each in moments[row[0]]):.0f}",
            *row[2:],
        ]
        for row in plain.rows
    ]
    return Grid(title, [*plain.header[:2], "level", "validation", "steps", *plain.header[2:]], rows)


def _mean_and_deviation(figure: ComparedFigure | None) -> str:
    if figure is None:
        return "missing"
    deviation = "" if figure.deviation is None else f" ±{percent(figure.deviation)}"
    is_better = figure.p_adjusted is not None and figure.p_adjusted < LEVEL
    return f"{percent(figure.mean)}{deviation}{'*' if is_better else ''}"


def _status(comparison: Comparison) -> str:
    return f"{_finished(comparison)} of {len(comparison.cells)} runs are finished."


def _finished(comparison: Comparison) -> int:
    return sum(cell.state == "finished" for cell in comparison.cells)


def _step_seconds(results: Sequence[CellResult], tasks: Sequence[str]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {task: {} for task in tasks}
    for result in results:
        for seconds in (each.step_seconds for each in result.moments if each.step_seconds is not None):
            if result.task in found:
                of_task = found[result.task]
                of_task[result.label] = min(seconds, of_task.get(result.label, seconds))
    return found


def _seconds(moments: CourseOfTraining) -> str:
    """Seconds of an optimiser step of each method on each task: the least busy stretch of all its runs."""
    tasks = moments.step_seconds
    rows = [["method", *tasks], ["---", *["---:"] * len(tasks)]]
    for label in dict.fromkeys(label for found in tasks.values() for label in found):
        rows.append([label, *(f"{found[label]:.2f}" if label in found else "-" for found in tasks.values())])
    words = "Seconds of an optimiser step on one core: the median of a stretch of training, of the quickest stretch."
    passes = "RoAST and Child-Tuning-D pass once over their training rows before the first step; that is not in here."
    return f"{words} {passes} Two processes ran at a time.\n\n{markdown(rows)}"


if __name__ == "__main__":
    main()
