"""Write docs/replication.md from what the replication of ROSE, and its pilot, have left in their folders.

python benchmarks/replication_page.py --pilot runs/replication-pilot --results runs/replication
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rosewood.experiments.tables import MARKDOWN, RESULTS
from rosewood.results import CellResult, Comparison

PAGE = Path(__file__).parent.parent / "docs" / "replication.md"
TEXT = """# ROSE's tables at a small scale

ROSE (Jiang et al., EMNLP 2022) fine-tunes RoBERTa for 10 epochs and measures it on GLUE and AdvGLUE. Here its recipes
and their rivals run on MiniLM (22.7 M parameters) with a few thousand training rows, on two CPU cores: ten recipes,
four tasks, three seeds, the same optimiser steps for all. This page is written by `benchmarks/replication_page.py` from
the results; no figure in its tables is typed in by hand.

```
rosewood compare experiments/replication-pilot.yaml --jobs 2 --data-dir $ROSEWOOD_DATA
rosewood compare experiments/replication.yaml --jobs 2 --data-dir $ROSEWOOD_DATA
python benchmarks/replication_page.py --pilot runs/replication-pilot --results runs/replication
```

How to read it:

- AdvGLUE rows were chosen because they fool well-trained models. A model that has learnt less is fooled less, so a
  method that learns slowly looks robust. Hence two tables: after equal steps, and at matched clean accuracy, where each
  method is taken at its first measured moment that reaches the lowest final validation accuracy of all methods (for
  each task and seed). Validation rows, carved from train, choose the moment; test rows and AdvGLUE are reported.
- AdvGLUE has 148 rows for SST-2 and QNLI, 81 for RTE and 78 for QQP: with three seeds, differences of a few points are
  noise. Stars are Holm-adjusted for the whole table.
- QNLI is trained and tested on two parts of the GLUE dev set, because its train set is not at hand.
- MiniLM (all-MiniLM-L6-v2) was tuned on Quora duplicates, SNLI and MNLI: QQP is no new task to it.
- The paper's figures, where they stand beside, are of RoBERTa base. The order of methods may carry over; the figures
  cannot.
- Learning rate and threshold were chosen for vanilla and for rose-second, and the other methods take theirs from these.

## The pilot

{pilot}

## The tables

{tables}

## Seconds

{seconds}
"""
NOT_RUN = "Not run yet."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pilot", type=Path, default=Path("runs/replication-pilot"))
    parser.add_argument("--results", type=Path, default=Path("runs/replication"))
    parser.add_argument("--page", type=Path, default=PAGE)
    given = parser.parse_args()
    given.page.write_text(page(given.pilot, given.results), encoding="utf-8")


def page(pilot: Path, results: Path) -> str:
    """The whole page; parts without results say so."""
    return TEXT.format(pilot=_pilot(pilot), tables=_tables(results), seconds=_seconds(results))


def _pilot(folder: Path) -> str:
    """Validation accuracy of every setting, one row a task, the best vanilla and the best ROSE in bold."""
    if not (folder / RESULTS).exists():
        return NOT_RUN
    comparison = Comparison.load(folder / RESULTS)
    by_task: dict[str, dict[str, float]] = {}
    for each in comparison.figures:
        if each.figure == "validation":
            by_task.setdefault(each.on, {})[each.label] = each.mean
    labels = list(dict.fromkeys(label for found in by_task.values() for label in found))
    rows = [["task", *labels], ["---", *["---:"] * len(labels)]]
    for task, found in by_task.items():
        best = {_best(found, "vanilla"), _best(found, "rose")}
        rows.append([task, *(_cell(found.get(label), label in best) for label in labels)])
    return f"{_standing(comparison)} Validation accuracy in %, one seed.\n\n{_markdown(rows)}"


def _best(found: dict[str, float], family: str) -> str:
    """The best of a family; the run that is twice as long is no choice, it shows whether the others have converged."""
    choices = [label for label in found if label.startswith(family) and not label.endswith("twice")]
    return max(choices, key=lambda label: found[label], default="")


def _cell(value: float | None, bold: bool) -> str:
    text = "-" if value is None else f"{100 * value:.1f}"
    return f"**{text}**" if bold else text


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
    return f"{words} Two processes ran at a time.\n\n{_markdown(rows)}"


def _markdown(rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


if __name__ == "__main__":
    main()
