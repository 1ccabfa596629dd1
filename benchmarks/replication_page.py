"""Write docs/replication.md, and the results beside it, from what the replication of ROSE and its pilot have left.

python benchmarks/replication_page.py --pilot runs/replication-pilot --results runs/replication
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from rosewood.evaluation.statistics import t_interval
from rosewood.experiments.cell import Cell, load_cell
from rosewood.experiments.gains import Gains, gains_at_end, gains_at_match
from rosewood.experiments.tables import MARKDOWN, RESULTS
from rosewood.results import CellResult, ComparedFigure, Comparison

PAGE = Path(__file__).parent.parent / "docs" / "replication.md"
TEXT = """# ROSE's tables at a small scale

ROSE (Jiang et al., EMNLP 2022) fine-tunes RoBERTa for 10 epochs and measures it on GLUE and AdvGLUE. Here its recipes
and their rivals run on MiniLM (22.7 M parameters) with 640 to 1,120 training rows, on two CPU cores: ten recipes,
four tasks, three seeds, the same optimiser steps for all. This page is written by `benchmarks/replication_page.py` from
the results; no figure in its tables is typed in by hand. [replication.json](replication.json) has every figure with its
value for each seed, its interval and its p-values, [replication-pilot.json](replication-pilot.json) those of the pilot.

```
rosewood compare experiments/replication-pilot.yaml --jobs 2
rosewood compare experiments/replication.yaml --jobs 2
python benchmarks/replication_page.py --pilot runs/replication-pilot --results runs/replication
```

## What replicates at this scale, and what does not

Means over SST-2, QQP and QNLI, in points over vanilla, with 95 % intervals over the three seeds that are not adjusted
for how many there are. RTE is left out of them, since vanilla does not learn it here: 50.4 % on test rows is guessing;
the paper's RoBERTa has 77.9 %.

- **ROSE-Ensemble gains a fifth of what the paper has, and after equal steps only.** It is 3.5 points better on AdvGLUE
  (1.8 to 5.1) at the same clean accuracy; the paper's RoBERTa gains 18.5 on these sets. With R-Drop beside it the gain
  is 4.0 (-0.9 to 8.9). Of the single sets only QQP's interval leaves out zero (+4.3, 2.4 to 6.1), and at matched
  accuracy nothing is left that could be told (+0.1, -6.8 to 7.0).
- **ROSE-Second shows no gain** (-0.2, -3.3 to 2.8; the paper +15.5). **ROSE-First** gains 6.0 (-0.7 to 12.7; the paper
  +18.4), and loses 3.9 of clean accuracy.
- **Much of what looks like robustness may be slower learning.** RoAST (+9.1), ROSE-First and FreeLB (+5.9) gain the
  most on AdvGLUE, and lose the most clean accuracy (8.9, 3.9 and 3.4). Matched on validation rows, which is rough (on
  test rows ROSE-First is still 3.8 and FreeLB 3.3 lower), only RoAST's AdvGLUE interval leaves out zero: +1.6 (1.1 to
  2.2). ROSE-First is at +4.1 (-4.8 to 13.1), FreeLB at +0.6 (-9.5 to 10.6). Little can be made of RoAST's: it has not
  learnt QNLI, and single sets and seeds vary far more than this interval says. Wide intervals do not show that a gain
  is zero.
- **SMART's gain does not replicate** (-0.1, -2.8 to 2.6; the paper +15.3), with clean accuracy 1.4 points higher (-2.3
  to 5.2). R-Drop's 2.6 (-3.3 to 8.5; the paper +7.7) cannot be told from nothing. Child-Tuning-D is at +2.4 (0.0 to
  4.8; the paper +0.9), but on each set its sign is the opposite of the paper's, and at matched accuracy it is at -0.7.

Why it is less than in the paper, as far as these runs can tell:

- There is less to repair. AdvGLUE's rows were made to fool large models that are well trained: the paper's vanilla is
  right on 23.7 % of them, MiniLM after two epochs of 640 to 1,040 rows on 39.5 %. Where it had learnt less it was right
  on more: 47.0 % on QQP (37.2 % at the end), 39.4 % on SST-2 (36.3 %), and 51.1 % on QNLI (45.0 %), where it was still
  guessing.
- ROSE was meant for ten epochs of whole data sets; here it acts on 160 to 260 updates. Its learning rate, as the pilot
  chose it, is half of vanilla's on SST-2 and QNLI: that slows it down, and may rather add to its AdvGLUE figures.
- Not tested, but likely: a model of six layers that was already tuned on sentence pairs has other weaknesses than
  RoBERTa; and the rivals of ROSE run with settings that were sought for vanilla.

## How to read it

- AdvGLUE rows were chosen because they fool well-trained models. A model that has learnt less is fooled less, so a
  method that learns slowly looks robust. Hence two tables: after equal steps, and at matched clean accuracy, where each
  method is taken at its first measured moment that reaches the lowest final validation accuracy of all methods (for
  each task and seed). Validation rows, carved from train, choose the moment; test rows and AdvGLUE are reported.
- AdvGLUE has 148 rows for SST-2 and QNLI, 81 for RTE and 78 for QQP: with three seeds, differences of a few points are
  noise. Stars are Holm-adjusted, the summaries `mean` and `drop` by themselves, all sets together. Three seeds find
  large differences only: no star does not mean no difference, and the intervals say what is left open.
- Where a method has not learnt a task, the matched level is that of guessing, and all methods are taken near their
  beginning: that row of the matched table then says nothing. "Moments of matched clean accuracy" has the levels, and
  how far above them the moments lie. The differences from vanilla below are matched pair by pair instead, so that such
  a method spoils its own row alone. With five moments and 300 validation rows every match is rough.
- QNLI is trained and tested on two parts of the GLUE dev set, because its train set is not at hand. Test rows
  may share a question with training rows, and then have the other label; validation rows share none. That may lower
  clean accuracy, and `drop` with it, for all methods.
- MiniLM (all-MiniLM-L6-v2) was tuned on Quora duplicates, SNLI and MNLI: QQP is no new task to it.
- The paper's figures, where they stand beside, are of RoBERTa base. The order of methods may carry over; the figures
  cannot.
- Learning rate and threshold were sought for vanilla (three rates) and for rose-second (three rates, two thresholds),
  with one seed, on at most 1,000 validation rows (of RTE and QNLI a tenth of train). The other methods take theirs from
  these two and were not tuned, which favours ROSE, if anything. Where the lowest rate is the best, lower ones were not
  tried.

## The pilot

{pilot}

## Settings

{settings}

## Differences from vanilla

{differences}

## The tables

{tables}

## Seconds

{seconds}
"""
NOT_RUN = "Not run yet."
LEARNT = ("sst2", "qqp", "qnli")
"""Tasks on which vanilla ends above guessing; those that it does not learn would only blur a mean."""
INTERVALS = (
    "Points of accuracy; differences of runs of the same seed, which saw the same rows, with the 95 % interval of "
    "their mean (Student's t, not adjusted for how many there are)."
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pilot", type=Path, default=Path("runs/replication-pilot"))
    parser.add_argument("--results", type=Path, default=Path("runs/replication"))
    parser.add_argument("--page", type=Path, default=PAGE)
    given = parser.parse_args()
    given.page.write_text(page(given.pilot, given.results), encoding="utf-8")
    for folder, name in ((given.results, "replication.json"), (given.pilot, "replication-pilot.json")):
        if (folder / RESULTS).exists():
            shutil.copyfile(folder / RESULTS, given.page.with_name(name))


def page(pilot: Path, results: Path) -> str:
    """The whole page; parts without results say so."""
    return TEXT.format(
        pilot=_pilot(pilot),
        settings=_settings(results, pilot),
        differences=_differences(results),
        tables=_tables(results),
        seconds=_seconds(results),
    )


def _pilot(folder: Path) -> str:
    """Validation accuracy of every setting, one row a task, the best vanilla and the best ROSE in bold."""
    if not (folder / RESULTS).exists():
        return NOT_RUN
    comparison, by_task = Comparison.load(folder / RESULTS), _validated(folder)
    labels = list(dict.fromkeys(label for found in by_task.values() for label in found))
    rows = [["task", *labels], ["---", *["---:"] * len(labels)]]
    for task, found in by_task.items():
        best = {_best(found, "vanilla"), _best(found, "rose")}
        rows.append([task, *(_cell(found.get(label), label in best) for label in labels)])
    return f"{_standing(comparison)} Validation accuracy in %, one seed.\n\n{_markdown(rows)}"


def _validated(folder: Path) -> dict[str, dict[str, float]]:
    """Task -> label -> validation accuracy in the pilot."""
    found: dict[str, dict[str, float]] = {}
    for each in Comparison.load(folder / RESULTS).figures:
        if each.figure == "validation":
            found.setdefault(each.on, {})[each.label] = each.mean
    return found


def _best(found: dict[str, float], family: str) -> str:
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


def _settings(results: Path, pilot: Path) -> str:
    """Learning rate and threshold of every method on every task, and whether they are those that the pilot found."""
    if not (results / RESULTS).exists():
        return NOT_RUN
    chosen = {(label, task): Chosen.of(cell) for label, task, cell in _cells(results)}
    tasks = list(dict.fromkeys(task for _, task in chosen))
    rows = [["method", *tasks], ["---", *["---:"] * len(tasks)]]
    for label in dict.fromkeys(label for label, _ in chosen):
        rows.append([label, *(str(chosen.get((label, task), "-")) for task in tasks)])
    words = "Learning rate and, for ROSE, `keep_quantile`"
    if not (pilot / RESULTS).exists():
        return f"**No pilot has chosen these.** {words}.\n\n{_markdown(rows)}"
    found = _found(pilot)
    other = [f"{label} on {task}" for (label, task), each in chosen.items() if each != found.get(_family(task, each))]
    verdict = f"**Not what the pilot found: {', '.join(other)}.**" if other else "All are what the pilot found."
    return f"{words}. {verdict}\n\n{_markdown(rows)}"


def _found(pilot: Path) -> dict[tuple[str, str], Chosen]:
    """Task and family -> the settings that were best on validation data."""
    tried = {(label, task): Chosen.of(cell) for label, task, cell in _cells(pilot)}
    best = {
        (task, family): (_best(found, family), task)
        for task, found in _validated(pilot).items()
        for family in ("vanilla", "rose")
    }
    return {key: tried[choice] for key, choice in best.items() if choice in tried}


def _family(task: str, chosen: Chosen) -> tuple[str, str]:
    return task, "vanilla" if chosen.keep_quantile is None else "rose"


def _cells(folder: Path) -> Iterator[tuple[str, str, Cell]]:
    for each in Comparison.load(folder / RESULTS).cells:
        yield each.label, each.task, load_cell(folder / each.name)


def _differences(folder: Path) -> str:
    """What each method has over vanilla, seed by seed: over the tasks that vanilla learns, and on each other one."""
    if not (folder / RESULTS).exists():
        return NOT_RUN
    comparison = Comparison.load(folder / RESULTS)
    tasks = _finished_tasks(comparison)
    groups = [[task for task in tasks if task in LEARNT], *([task] for task in tasks if task not in LEARNT)]
    parts = [_differences_on(folder, comparison, group) for group in groups if group]
    return "\n\n".join([INTERVALS, *parts]) if parts else "No task is finished yet."


def _differences_on(folder: Path, comparison: Comparison, tasks: Sequence[str]) -> str:
    results = [CellResult.load(folder / cell.name / "result.json") for cell in comparison.cells if cell.task in tasks]
    methods = [label for label in dict.fromkeys(cell.label for cell in comparison.cells) if label != "vanilla"]
    return "\n\n".join(
        [
            f"**{'Mean over ' if len(tasks) > 1 else ''}{', '.join(tasks)}**",
            "After equal steps, and what the paper's RoBERTa base has on AdvGLUE:",
            _after_equal_steps(comparison.figures, methods, tasks),
            "At matched accuracy, each method with vanilla alone: both at their first measured moment that reaches the "
            "lower of their two final validation accuracies:",
            _at_matched_accuracy(results, methods, tasks),
        ]
    )


def _after_equal_steps(figures: Sequence[ComparedFigure], methods: Sequence[str], tasks: Sequence[str]) -> str:
    rows = [["method", "seeds", "clean", "AdvGLUE", "AdvGLUE, paper"], ["---", *["---:"] * 4]]
    for label in methods:
        sides = _sides(gains_at_end(figures, label, "vanilla"), tasks)
        rows.append([label, _seeds(sides), *map(_with_interval, sides), _published_gain(figures, label, tasks)])
    return _markdown(rows)


def _at_matched_accuracy(results: Sequence[CellResult], methods: Sequence[str], tasks: Sequence[str]) -> str:
    rows = [["method", "seeds", "clean", "AdvGLUE"], ["---", *["---:"] * 3]]
    for label in methods:
        sides = _sides(gains_at_match(results, label, "vanilla"), tasks)
        rows.append([label, _seeds(sides), *map(_with_interval, sides)])
    return _markdown(rows)


def _sides(gains: Gains, tasks: Sequence[str]) -> list[list[float]]:
    """Points on the tasks' own test rows and on their AdvGLUE sets, of each seed."""
    return [_over_tasks(gains, [prefix + task for task in tasks]) for prefix in ("", "advglue_")]


def _seeds(sides: Sequence[list[float]]) -> str:
    return str(min(map(len, sides)))


def _published_gain(figures: Sequence[ComparedFigure], label: str, tasks: Sequence[str]) -> str:
    """What the paper's method has over the paper's vanilla, the mean over the AdvGLUE sets."""
    published = {(each.label, each.figure): each.published for each in figures}
    pairs = [
        (published.get((label, f"advglue_{task}")), published.get(("vanilla", f"advglue_{task}"))) for task in tasks
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


def _with_interval(gains: list[float]) -> str:
    if len(gains) < 2:
        return "-" if not gains else f"{gains[0]:+.1f}"
    low, high = t_interval(gains)
    return f"{fmean(gains):+.1f} ({low:+.1f} to {high:+.1f})"


def _tables(folder: Path) -> str:
    if not (folder / MARKDOWN).exists():
        return NOT_RUN
    comparison = Comparison.load(folder / RESULTS)
    _, tables = (folder / MARKDOWN).read_text(encoding="utf-8").split("\n", 1)  # without its own title
    return f"{_standing(comparison)}\n\n{tables.strip()}"


def _standing(comparison: Comparison) -> str:
    finished = sum(cell.state == "finished" for cell in comparison.cells)
    return f"{finished} of {len(comparison.cells)} runs are finished."


def _seconds(folder: Path) -> str:
    """Seconds of an optimiser step of each method on each task: the least busy stretch of all its runs."""
    if not (folder / RESULTS).exists():
        return NOT_RUN
    steps: dict[str, dict[str, float]] = {}
    for cell in Comparison.load(folder / RESULTS).cells:
        if cell.state == "finished":
            moments = CellResult.load(folder / cell.name / "result.json").moments
            tasks = steps.setdefault(cell.label, {})
            for seconds in (each.step_seconds for each in moments if each.step_seconds is not None):
                tasks[cell.task] = min(seconds, tasks.get(cell.task, seconds))
    tasks_seen = list(dict.fromkeys(task for found in steps.values() for task in found))
    rows = [["method", *tasks_seen], ["---", *["---:"] * len(tasks_seen)]]
    for label, found in steps.items():
        rows.append([label, *(f"{found[task]:.2f}" if task in found else "-" for task in tasks_seen)])
    words = "Seconds of an optimiser step on one core: the median of a stretch of training, of the quickest stretch."
    passes = "RoAST and Child-Tuning-D pass once over their training rows before the first step; that is not in here."
    return f"{words} {passes} Two processes ran at a time.\n\n{_markdown(rows)}"


def _markdown(rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


if __name__ == "__main__":
    main()
