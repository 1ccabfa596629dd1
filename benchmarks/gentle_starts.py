"""Published settings of adversarial recipes beside their variants `gentle`, on 5,000 sentences of SST-2.

Each is a run of 120 steps of 16 sentences with MiniLM and one seed. The table has the clean cross-entropy over the last
tenth of the steps (guessing has 0.69) and the accuracy on 1,000 held-out training sentences. Finished runs are only
read, so the script can be stopped and started again.

    python benchmarks/gentle_starts.py --data-dir $ROSEWOOD_DATA --output runs/gentle
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import fmean

from evidence_page import markdown

from rosewood.data.tasks import load_task
from rosewood.recipe import load_recipe
from rosewood.results import Metrics
from rosewood.training.run import Plan, finish_run

RECIPES = ("adv-base", "adv-ptwd", "adv-mixout", "rift")
STEPS, BATCH, TRAIN_SIZE, LENGTH, RATE = 120, 16, 5000, 32, 1e-4


def finished(recipe: str, data_dir: str, output: Path) -> list[str]:
    """Train with one recipe, unless that has been done: its row of the table."""
    plan = Plan(
        recipe=load_recipe(recipe),
        task=load_task("sst2"),
        data_dir=data_dir,
        train_size=TRAIN_SIZE,
        max_length=LENGTH,
        arguments={"max_steps": STEPS, "learning_rate": RATE, "per_device_train_batch_size": BATCH},
    )
    finish_run(plan, output)
    steps = [json.loads(line) for line in (output / "history.jsonl").read_text(encoding="utf-8").splitlines()]
    loss = fmean(step["terms"]["ce"] for step in steps[-STEPS // 10 :])
    accuracy = Metrics.load(output / "metrics.json").validation_accuracy
    return [f"`{recipe}`", f"{loss:.2f}", "–" if accuracy is None else f"{100 * accuracy:.1f}"]


def _with_variant(recipe: str) -> list[str]:
    return [recipe, f"{recipe}:gentle"] if "gentle" in load_recipe(recipe).variants else [recipe]


def main() -> None:
    """Train one after the other, and print what there is after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "recipes", nargs="*", default=["vanilla", *RECIPES], help="recipes to compare with their variant"
    )
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--output", type=Path, default=Path("runs/gentle"))
    given = parser.parse_args()
    rows: list[list[str]] = []
    for recipe in (name for each in given.recipes for name in _with_variant(each)):
        rows.append(finished(recipe, given.data_dir, given.output / recipe.replace(":", "-")))
        print(markdown(["recipe", "cross-entropy", "held-out accuracy"], rows), flush=True)


if __name__ == "__main__":
    main()
