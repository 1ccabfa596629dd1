"""Automatic thresholds for ROSE-Second against a fixed 0.6, a small grid and no mask, on held-out rows of train sets.

No test row of a task is touched: a part of its train set is held out, drawn with another seed than the task's own
validation part. One half of it chooses, task by task, the grid's threshold and the best of the rules; the other half,
as it is and with typos, is what is reported. A quantile of 1 masks nothing, at the same learning rate, so that a rule
which does as well by switching ROSE off is seen to do so. Each cell (task, threshold, seed) is a run directory, so
the script can be stopped and started again, and several may work side by side on different tasks or seeds; finished
cells are only read.

    python benchmarks/automatic_threshold.py --data-dir $ROSEWOOD_DATA --output runs/threshold \\
      --table experiments/results/rose-threshold.json
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import fmean, pstdev, stdev
from typing import Any

from rich.console import Console

from rosewood.comparison.statistics import t_interval
from rosewood.config.strict_yaml import parse_overrides
from rosewood.data.loading import load_split
from rosewood.data.tasks import Carve, Split, Task, load_task
from rosewood.evaluation.predict import predict
from rosewood.models.open import load_classifier
from rosewood.recipe import load_recipe
from rosewood.results import RunInfo
from rosewood.results.files import write_whole
from rosewood.training.run import Plan, finish_run
from rosewood.words.noise import noisy

GRID = ("0.3", "0.6", "0.9")
FIXED, UNMASKED = "0.6", "1.0"
RULES = ("otsu", "outliers", "gap")
MEASURES = ("accuracy", "typos")
TYPO_RATE = 0.3
SEEDS = (0, 1, 2)
HELD_OUT_SEED = 1  # the tasks carve their validation part with seed 0


@dataclass(frozen=True)
class Scale:
    """How much of a task a cell trains on, and how much of its train set is held out."""

    train_size: int
    max_length: int
    held_out: float


SCALES = {  # those of experiments/replication.yaml, and so is the learning rate, which its pilot has chosen for ROSE
    "sst2": Scale(960, 48, 0.03),
    "qqp": Scale(640, 64, 0.2),
    "qnli": Scale(1040, 64, 0.3),
}
TRAINING = {
    "num_train_epochs": 2,
    "per_device_train_batch_size": 8,
    "learning_rate": 5e-5,
    "lr_scheduler_type": "constant_with_warmup",
    "warmup_steps": 0.06,
    "weight_decay": 0.01,
    "max_grad_norm": 1.0,
    "eval_strategy": "no",
}


def divided(name: str) -> Task:
    """The task with nothing but its train set, a part of which plays the test role."""
    task = load_task(name)
    own = task.splits["validation"].carve
    group = own.group if own else None
    part = Carve.model_validate(
        {"from": "train", "share": SCALES[name].held_out, "seed": HELD_OUT_SEED, "group": group}
    )
    return task.model_copy(update={"splits": {"train": task.splits["train"], "test": Split(role="test", carve=part)}})


def plan(task: str, threshold: str, seed: int, data_dir: str) -> Plan:
    scale = SCALES[task]
    return Plan(
        recipe=load_recipe("rose-second", parse_overrides([f"selection.keep_quantile={threshold}"])),
        task=divided(task),
        data_dir=data_dir,
        train_size=scale.train_size,
        max_length=scale.max_length,
        seed=seed,
        arguments=TRAINING,
    )


def run(task: str, threshold: str, seed: int, data_dir: str, folder: Path) -> None:
    """Train and score one cell, unless that has been done."""
    made = plan(task, threshold, seed, data_dir)
    finish_run(made, folder)  # which refuses a run with other settings
    if (folder / "cell.json").exists():
        return
    model, tokenizer = load_classifier(str(folder / "model"))
    rows = load_split(made.task, "test", data_dir).shuffle(seed=0)
    logits = predict(model, tokenizer, rows, made.task.text, made.max_length)
    correct = logits.argmax(-1) == rows["label"][:]
    half = len(rows) // 2
    reported = noisy(rows.select(range(half, len(rows))), made.task.text, "typos", TYPO_RATE, seed=0)
    mistyped = predict(model, tokenizer, reported, made.task.text, made.max_length).argmax(-1) == reported["label"][:]
    history = [json.loads(line) for line in (folder / "history.jsonl").read_text(encoding="utf-8").splitlines()]
    shares = [record["kept_share"] for record in history]
    cell = {
        "task": task,
        "threshold": threshold,
        "seed": seed,
        "choice": float(correct[:half].mean()),
        "accuracy": float(correct[half:].mean()),
        "typos": float(mistyped.mean()),
        "examples": len(rows) - half,
        "steps": len(shares),
        "kept_share": fmean(shares),
        "kept_share_deviation": pstdev(shares),
        "seconds": RunInfo.load(folder / "run.json").seconds,
    }
    write_whole(folder / "cell.json", json.dumps(cell, indent=2))


Cells = list[dict[str, Any]]


def named(cells: Cells) -> dict[str, dict[str, Cells]]:
    """Task -> threshold, `grid` and `rule` among them, which are chosen on the other half -> its cells."""
    found: dict[str, dict[str, Cells]] = {}
    for cell in cells:
        found.setdefault(cell["task"], {}).setdefault(cell["threshold"], []).append(cell)
    for thresholds in found.values():
        for name, choices in (("grid", GRID), ("rule", RULES)):
            if set(choices) <= set(thresholds):
                best = max(choices, key=lambda each: fmean(cell["choice"] for cell in thresholds[each]))
                thresholds[name] = thresholds[best]
    return found


def summary(cells: Cells) -> list[dict[str, Any]]:
    """Mean and deviation over the seeds, for each task and threshold, and for those that were chosen."""
    return [
        line(task, threshold, group)
        for task, thresholds in named(cells).items()
        for threshold, group in thresholds.items()
    ]


def line(task: str, threshold: str, cells: Cells) -> dict[str, Any]:
    over_seeds = {measure: [cell[measure] for cell in cells] for measure in MEASURES}
    return {
        "task": task,
        "threshold": threshold,
        "chosen": cells[0]["threshold"],
        "seeds": len(cells),
        "mean": {measure: fmean(values) for measure, values in over_seeds.items()},
        "deviation": {measure: stdev(values) if len(cells) > 1 else None for measure, values in over_seeds.items()},
        "examples": cells[0]["examples"],
        "kept_share": fmean(cell["kept_share"] for cell in cells),
        "kept_share_deviation": fmean(cell["kept_share_deviation"] for cell in cells),
        "seconds": fmean(cell["seconds"] for cell in cells),
    }


def differences(cells: Cells) -> list[dict[str, Any]]:
    """Rules against a fixed threshold, the grid and no mask: over all tasks, seed by seed, with 95 % intervals."""
    tasks = named(cells)
    found = []
    for ours, theirs in product([*RULES, "rule"], [FIXED, "grid", UNMASKED]):
        if not all({ours, theirs} <= set(thresholds) for thresholds in tasks.values()):
            continue
        for measure in MEASURES:
            gains = [
                {
                    one["seed"]: one[measure] - other[measure]
                    for one, other in product(thresholds[ours], thresholds[theirs])
                    if one["seed"] == other["seed"]
                }
                for thresholds in tasks.values()
            ]
            seeds = sorted(set.intersection(*map(set, gains)))
            values = [fmean(of_task[seed] for of_task in gains) for seed in seeds]
            if len(values) > 1:
                low, high = t_interval(values)
                found.append(
                    {"of": ours, "from": theirs, "measure": measure, "seeds": len(values), "mean": fmean(values)}
                    | {"low": low, "high": high}
                )
    return found


def markdown(lines: list[dict[str, Any]], gains: list[dict[str, Any]]) -> str:
    return f"{_scores(lines)}\n\n{_gains(gains)}"


def _scores(lines: list[dict[str, Any]]) -> str:
    """One row per threshold, one column per task: accuracy, accuracy with typos, and the share of tensors that move."""
    tasks = list(dict.fromkeys(each["task"] for each in lines))
    found = {(each["threshold"], each["task"]): each for each in lines}
    rows = [["threshold", *(f"{task}: held out, with typos, share" for task in tasks)]]
    for threshold in dict.fromkeys(threshold for threshold, _ in found):
        rows.append([threshold, *(_score(found.get((threshold, task))) for task in tasks)])
    return _piped(rows)


def _score(line: dict[str, Any] | None) -> str:
    if line is None:
        return "-"
    chosen = "" if line["threshold"] == line["chosen"] else f"{line['chosen']}: "
    measured = [_with_spread(line["mean"][measure], line["deviation"][measure]) for measure in MEASURES]
    return chosen + ", ".join([*measured, f"{line['kept_share']:.2f}"])


def _gains(gains: list[dict[str, Any]]) -> str:
    """One row a rule and a measure, one column what it is compared with."""
    against = sorted({each["from"] for each in gains})
    found = {(each["of"], each["measure"], each["from"]): each for each in gains}
    rows = [["rule", "measure", *(f"less {each}" for each in against)]]
    for ours, measure in dict.fromkeys((of, measure) for of, measure, _ in found):
        rows.append([ours, measure, *(_points(found.get((ours, measure, each))) for each in against)])
    return _piped(rows)


def _piped(rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in [rows[0], ["---"] * len(rows[0]), *rows[1:]])


def _with_spread(mean: float, deviation: float | None) -> str:
    return f"{100 * mean:.1f}" + ("" if deviation is None else f" ± {100 * deviation:.1f}")


def _points(gain: dict[str, Any] | None) -> str:
    if gain is None:
        return "-"
    return f"{100 * gain['mean']:+.1f} ({100 * gain['low']:+.1f} to {100 * gain['high']:+.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", help=f"of {', '.join(SCALES)}; all if none is named")
    parser.add_argument(
        "--thresholds", nargs="*", default=[*GRID, UNMASKED, *RULES], help="quantiles and names of rules"
    )
    parser.add_argument("--seeds", nargs="*", type=int, default=SEEDS)
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--output", type=Path, default=Path("runs/threshold"))
    parser.add_argument("--table", type=Path, help="write all finished cells and their summary as JSON")
    arguments = parser.parse_args()
    for seed, task, threshold in product(arguments.seeds, arguments.tasks or SCALES, arguments.thresholds):
        folder = arguments.output / f"{task}-{threshold}-seed{seed}"
        run(task, threshold, seed, arguments.data_dir, folder)
        done = sorted(arguments.output.glob("*/cell.json"))
        cells = [json.loads(path.read_text(encoding="utf-8")) for path in done]
        lines, gains = summary(cells), differences(cells)
        if arguments.table:
            found = {"cells": cells, "summary": lines, "differences": gains}
            write_whole(arguments.table, json.dumps(found, indent=2) + "\n")
        Console().print(markdown(lines, gains), highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
