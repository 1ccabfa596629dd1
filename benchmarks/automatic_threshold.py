"""Automatic thresholds for ROSE-Second against the published one and a small grid, on held-out rows of train sets.

No test row of a task is touched: a part of its train set is held out, drawn with another seed than the task's own
validation part. One half of it chooses the grid's threshold, task by task; the other half is what is reported. Each
cell (task, threshold, seed) is a run directory, so the script can be stopped and started again, and several may work
side by side on different tasks or seeds; finished cells are only read.

    python benchmarks/automatic_threshold.py --data-dir $ROSEWOOD_DATA --output runs/threshold --table threshold.json
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

from rosewood.data.loading import load_split
from rosewood.data.tasks import Carve, Split, Task, load_task
from rosewood.durable import write_whole
from rosewood.evaluation.classifier import load_classifier
from rosewood.evaluation.predict import predict
from rosewood.overrides import parse_overrides
from rosewood.recipe import load_recipe
from rosewood.results import RunInfo
from rosewood.training.run import Plan, finish_run

GRID = ("0.3", "0.6", "0.9")
RULES = ("otsu", "outliers", "gap")
SEEDS = (0, 1, 2)
HELD_OUT_SEED = 1  # the tasks carve their validation part with seed 0


@dataclass(frozen=True)
class Scale:
    """How much of a task a cell trains on, and how much of its train set is held out."""

    train_size: int
    max_length: int
    held_out: float


SCALES = {  # those of experiments/replication.yaml
    "sst2": Scale(960, 48, 0.03),
    "qqp": Scale(640, 64, 0.2),
    "qnli": Scale(1040, 64, 0.3),
}
TRAINING = {
    "num_train_epochs": 2,
    "per_device_train_batch_size": 8,
    "learning_rate": 1e-4,
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
    history = [json.loads(line) for line in (folder / "history.jsonl").read_text(encoding="utf-8").splitlines()]
    shares = [record["kept_share"] for record in history]
    cell = {
        "task": task,
        "threshold": threshold,
        "seed": seed,
        "choice": float(correct[:half].mean()),
        "accuracy": float(correct[half:].mean()),
        "examples": len(rows) - half,
        "steps": len(shares),
        "kept_share": fmean(shares),
        "kept_share_deviation": pstdev(shares),
        "seconds": RunInfo.load(folder / "run.json").seconds,
    }
    write_whole(folder / "cell.json", json.dumps(cell, indent=2))


def summary(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mean and deviation over the seeds, for each task and threshold, and for the threshold that the grid chooses."""
    found = []
    for task in dict.fromkeys(cell["task"] for cell in cells):
        of_task = [cell for cell in cells if cell["task"] == task]
        by_threshold = {
            name: [cell for cell in of_task if cell["threshold"] == name]
            for name in dict.fromkeys(cell["threshold"] for cell in of_task)
        }
        found += [line(task, name, group) for name, group in by_threshold.items()]
        if set(GRID) <= set(by_threshold):
            best = max(GRID, key=lambda name: fmean(cell["choice"] for cell in by_threshold[name]))
            found.append(line(task, f"grid ({best})", by_threshold[best]))
    return found


def line(task: str, threshold: str, cells: list[dict[str, Any]]) -> dict[str, Any]:
    accuracies = [cell["accuracy"] for cell in cells]
    return {
        "task": task,
        "threshold": threshold,
        "seeds": len(cells),
        "accuracy": fmean(accuracies),
        "deviation": stdev(accuracies) if len(cells) > 1 else None,
        "examples": cells[0]["examples"],
        "kept_share": fmean(cell["kept_share"] for cell in cells),
        "kept_share_deviation": fmean(cell["kept_share_deviation"] for cell in cells),
        "seconds": fmean(cell["seconds"] for cell in cells),
    }


def markdown(lines: list[dict[str, Any]]) -> str:
    table = ["| task | threshold | seeds | held-out accuracy | kept share | seconds |", "| --- " * 6 + "|"]
    for each in lines:
        spread = "" if each["deviation"] is None else f" ± {100 * each['deviation']:.1f}"
        table.append(
            f"| {each['task']} | {each['threshold']} | {each['seeds']} | {100 * each['accuracy']:.1f}{spread} "
            f"| {each['kept_share']:.2f} ± {each['kept_share_deviation']:.2f} | {each['seconds']:.0f} |"
        )
    return "\n".join(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", help=f"of {', '.join(SCALES)}; all if none is named")
    parser.add_argument("--thresholds", nargs="*", default=[*GRID, *RULES], help="quantiles and names of rules")
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
        lines = summary(cells)
        if arguments.table:
            write_whole(arguments.table, json.dumps({"cells": cells, "summary": lines}, indent=2) + "\n")
        Console().print(markdown(lines), highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
