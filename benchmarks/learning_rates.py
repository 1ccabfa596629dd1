"""Which learning rate a small fine-tuning job wants, by model and number of steps: what the default is chosen from.

Three small sets (questions in six classes, product reviews in two, sentence pairs in two), two sizes, five rates. The
figure is the accuracy on 500 rows held out from training; no test row is read. Each cell is a run directory, so the
script can be stopped and started again, and several may work side by side on different models or recipes.

    python benchmarks/learning_rates.py --data-dir $ROSEWOOD_DATA --output runs/rates --table rates.json
"""

from __future__ import annotations

import argparse
import json
import random
from itertools import product
from pathlib import Path

from rosewood.data.loading import task_from_files
from rosewood.recipe import load_recipe
from rosewood.results import Metrics
from rosewood.results.files import write_whole
from rosewood.training.plan import Plan
from rosewood.training.run import finish_run

RATES = (2e-5, 5e-5, 1e-4, 2e-4, 4e-4)
SIZES = (400, 1600)
HELD_OUT = 500
SETS = ("trec", "cr", "mrpc")


def rows_of(name: str, data: Path) -> list[dict[str, str]]:
    """The rows of a set's training file, in a seeded order."""
    if name == "mrpc":
        lines = (data / "glue/MRPC/train.jsonl").read_text(encoding="utf-8").splitlines()
        pairs = [json.loads(line) for line in lines]
        rows = [{"text": p["sentence1"], "text2": p["sentence2"], "label": f"class {p['label']}"} for p in pairs]
    else:
        file = {"trec": "TREC.train.all.txt", "cr": "custrev.all.txt"}[name]
        lines = (data / "sentconv" / file).read_text(encoding="latin-1").splitlines()
        split = [line.split(" ", 1) for line in lines if line.strip()]
        rows = [{"text": text, "label": f"class {label}"} for label, text in split if text.strip()]
    random.Random(0).shuffle(rows)
    return rows


def written(name: str, data: Path, folder: Path) -> tuple[Path, Path]:
    """The set as two files: rows to train on, and rows held out."""
    rows, files = rows_of(name, data), []
    for part, chosen in (("train", rows[HELD_OUT:]), ("held-out", rows[:HELD_OUT])):
        file = folder / f"{name}-{part}.jsonl"
        write_whole(file, "".join(json.dumps(row) + "\n" for row in chosen))
        files.append(file)
    return files[0], files[1]


def accuracy(recipe: str, model: str, name: str, size: int, rate: float, options: argparse.Namespace) -> float:
    """Held-out accuracy of one cell; trains it if it is not there."""
    train, held_out = written(name, options.data_dir, options.output)
    columns = ["text", "text2"] if name == "mrpc" else ["text"]
    plan = Plan(
        recipe=load_recipe(recipe),
        task=task_from_files(train, held_out, text_columns=columns),
        model=model,
        train_size=size,
        max_length=96,
        precision=options.precision,
        arguments={"learning_rate": rate, "eval_strategy": "no", "num_train_epochs": 3},
    )
    output = options.output / f"{recipe}-{Path(model).name}-{name}-{size}-{rate:g}"
    finish_run(plan, output)
    for weights in output.glob("model/*.safetensors"):  # a hundred of them would fill a disk
        weights.unlink()
    found = Metrics.load(output / "metrics.json").validation_accuracy
    assert found is not None, "there is a held-out file"
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--table", type=Path, required=True)
    parser.add_argument("--models", nargs="+", default=["minilm"])
    parser.add_argument("--recipes", nargs="+", default=["vanilla", "rose-second"])
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--sizes", nargs="+", type=int, default=list(SIZES))
    parser.add_argument("--rates", nargs="+", type=float, default=list(RATES))
    parser.add_argument("--precision", choices=("float32", "bfloat16", "auto"), default="float32")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    table = []
    for model, size, name, recipe in product(options.models, options.sizes, options.sets, options.recipes):
        found = {f"{rate:g}": accuracy(recipe, model, name, size, rate, options) for rate in options.rates}
        table.append({"model": Path(model).name, "recipe": recipe, "set": name, "rows": size, "accuracy": found})
        write_whole(options.table, json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
