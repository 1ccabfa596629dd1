"""Recipes, all or those named, on the same 3,200 SST-2 sentences: clean and AdvGLUE accuracy, seconds, step ratios.

Each recipe is a run directory, so the script can be stopped and started again, and several may work side by side on
different recipes; finished runs are only read. The learning rate is the same for all. Seconds depend on what else the
machine does, so the ratio is that of step_cost.json, measured in turns.

    python benchmarks/recipes_on_sst2.py --data-dir $ROSEWOOD_DATA --output runs/sst2 --table docs/recipes-sst2.json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from rich.console import Console

from rosewood.data.tasks import load_task
from rosewood.evaluation.evaluate import evaluate
from rosewood.models.open import load_classifier
from rosewood.recipe import Recipe, load_recipe, recipe_names
from rosewood.results import Evaluation, Metrics, RunInfo
from rosewood.training.run import Plan, finish_run

TRAIN_SIZE, EPOCHS, LEARNING_RATE, LENGTH = 3200, 2.0, 2e-4, 128
STEP_COST = Path(__file__).with_name("step_cost.json")
SETS = ("test", "advglue")


def run(recipe: str | Recipe, data_dir: str, output: Path, seed: int) -> None:
    """Train and evaluate one recipe, unless that has been done."""
    plan = Plan(
        recipe=load_recipe(recipe),
        task=load_task("sst2"),
        data_dir=data_dir,
        train_size=TRAIN_SIZE,
        max_length=LENGTH,
        seed=seed,
        arguments={"num_train_epochs": EPOCHS, "learning_rate": LEARNING_RATE},
    )
    finish_run(plan, output)
    if (output / "evaluation.json").exists():
        return
    whole = plan.task
    task = whole.model_copy(
        update={"splits": {n: s for n, s in whole.splits.items() if s.role == "train" or n in SETS}}
    )
    model, tokenizer = load_classifier(str(output / "model"))
    evaluate(model, tokenizer, task, data_dir, max_length=LENGTH).save(output / "evaluation.json")


def row(recipe: str, output: Path) -> dict[str, Any]:
    results = {each.name: each for each in Evaluation.load(output / "evaluation.json").sets}
    return {
        "recipe": recipe,
        "clean": results["test"].accuracy,
        "clean_interval": results["test"].interval,
        "advglue": results["advglue"].accuracy,
        "advglue_interval": results["advglue"].interval,
        "validation": Metrics.load(output / "metrics.json").validation_accuracy,
        "seconds": RunInfo.load(output / "run.json").seconds,
    }


def markdown(rows: list[dict[str, Any]]) -> str:
    steps = json.loads(STEP_COST.read_text(encoding="utf-8"))["steps"]
    lines = ["| recipe | clean | AdvGLUE (95 % interval) | seconds | ratio |", "| --- | --- | --- | --- | --- |"]
    for r in rows:
        low, high = r["advglue_interval"]
        ratio = f"{steps[r['recipe']]['ratio']:.2f}" if r["recipe"] in steps else "-"
        lines.append(
            f"| {r['recipe']} | {100 * r['clean']:.1f} "
            f"| {100 * r['advglue']:.1f} ({100 * low:.1f} to {100 * high:.1f}) | {r['seconds']:.0f} | {ratio} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="*", help="recipes to run; all if none is named")
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--output", type=Path, default=Path("runs/sst2"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--table", type=Path, help="write the rows of all finished runs as JSON")
    arguments = parser.parse_args()
    console = Console()
    for recipe in arguments.recipes or recipe_names():
        run(recipe, arguments.data_dir, arguments.output / recipe, arguments.seed)
        done = [name for name in recipe_names() if (arguments.output / name / "evaluation.json").exists()]
        rows = [row(name, arguments.output / name) for name in done]
        if arguments.table:
            arguments.table.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
        console.print(markdown(rows), highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
