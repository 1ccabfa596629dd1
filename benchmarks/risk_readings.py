"""ROSE-First with a cheaper reading of its risk: how many tensors are masked alike, accuracy, and seconds.

Three measurements. The first two write their figures as they come and continue where they were stopped; the third
takes minutes:

agreement  trains with the exact risk and reads, at every step, on the same weights and the same batch but with dropout
           of its own, the masks of each cheaper setting; the exact risk, read once more, is the noise floor.
train      trains and evaluates with each setting, as recipes_on_sst2.py does.
steps      times a step of each setting in turn, as step_cost.py does; means, because some settings read the risk in
           some steps only.

    python benchmarks/risk_readings.py agreement train steps --data-dir $ROSEWOOD_DATA
    python benchmarks/risk_readings.py table
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import recipes_on_sst2
import step_cost
import torch
from rich.console import Console
from transformers import DataCollatorWithPadding, TrainerCallback, TrainingArguments

from rosewood.data.examples import tokenize
from rosewood.data.loading import load_split
from rosewood.data.tasks import load_task
from rosewood.models.open import load_pretrained
from rosewood.protocol import Batch, Call, Pass, Progress, Readings, Run, Selector
from rosewood.recipe import Recipe, load_recipe
from rosewood.training.gradients import Gradients
from rosewood.training.trainer import RobustTrainer

RECIPE = "rose-first"
ONE_PASS: dict[str, Any] = {"objective.passes": 1}
AGAIN = "exact, other dropout"
SETTINGS: list[dict[str, Any]] = [
    {"probe_fraction": 0.25},
    {"probe_fraction": 0.125},
    {"probe_fraction": 0.0625},
    {"probe_every": 4},
    {"probe_every": 16},
    {"risk_sketch": 4},
    {"risk_sketch": 16},
    {"probe_fraction": 0.25, "risk_sketch": 16},
    {"probe_fraction": 0.125, "probe_every": 4},
]


def label(settings: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in settings.items()) or "exact"


def overrides(settings: dict[str, Any]) -> dict[str, Any]:
    return ONE_PASS | {f"selection.{name}": value for name, value in settings.items()}


def recipe_of(settings: dict[str, Any]) -> Recipe:
    return load_recipe(RECIPE, overrides(settings))


def at_once(settings: dict[str, Any]) -> dict[str, Any]:
    """What a step that reads does; masks of the steps in between are looked up, not read."""
    return {name: value for name, value in settings.items() if name != "probe_every"}


# Agreement.


class Watched(RobustTrainer):
    """Trains as ever; before each step, reads the masks of every setting without leaving a trace."""

    readings: Path
    known: int

    def training_step(self, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> torch.Tensor:
        step = self.state.global_step
        if step >= self.known:
            call = self._call(model)
            batch = self._prepare_inputs(inputs)
            masks = {AGAIN: self._read(call, batch, step, {}, AGAIN)}
            for settings in [{}, *SETTINGS]:
                single = at_once(settings)
                if label(single) not in masks:
                    masks[label(single)] = self._read(call, batch, step, single, label(single))
            with self.readings.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"step": step, "masks": masks}) + "\n")
        return super().training_step(model, inputs, *args, **kwargs)

    def _read(self, call: Call, batch: Batch, step: int, settings: dict[str, Any], key: str) -> str:
        """One character a candidate: 1 if it may move."""
        stage = recipe_of(settings).all_stages()[0]
        run = Run(self.model, self.state.max_steps, stage, self.args.seed)
        self.model.train()
        with torch.random.fork_rng():
            torch.manual_seed(int(run.generator(key, step).initial_seed() % 2**63))
            selector = stage.selection.start(run)
            try:
                return read_mask(selector, call, batch, self.model, Progress(step, self.state.max_steps))
            finally:
                selector.leave()


def read_mask(selector: Selector, call: Call, batch: Batch, model: torch.nn.Module, at: Progress) -> str:
    gradients = Gradients(model, lambda loss: loss.backward())
    terms = selector.probe(call, batch, Pass([], [call(batch)]), at)
    gradients.add(terms, selector.reads(terms, at), 1)
    one = torch.ones(())
    # Every candidate would get a gradient of the loss; which one plays no part in the first-order risk.
    total = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    seen = gradients.readings() | {"total": total}
    found = selector.masks(Readings(seen, gradients.factors(one, 1.0), one, {}, 0.9, at))
    assert found is not None
    assert isinstance(found.values, torch.Tensor)
    return "".join(str(int(value)) for value in found.values.tolist())


class StopAfter(TrainerCallback):
    def __init__(self, steps: int) -> None:
        self.steps = steps

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        control.should_training_stop = state.global_step >= self.steps


def agreement(arguments: argparse.Namespace) -> dict[str, Any]:
    file = arguments.output / "agreement.jsonl"
    records = read_records(file)
    if len(records) < arguments.steps:
        arguments.output.mkdir(parents=True, exist_ok=True)
        watch(arguments, file, len(records))
        records = read_records(file)
    return summary(records[: arguments.steps])


def read_records(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []


def watch(arguments: argparse.Namespace, file: Path, known: int) -> None:
    """The training is repeated after an interruption, and comes out the same; known readings are not."""
    task = load_task("sst2")
    model, tokenizer = load_pretrained(arguments.model, task, seed=0)
    rows = load_split(task, "train", arguments.data_dir, recipes_on_sst2.TRAIN_SIZE, seed=0)
    trainer = Watched(
        model=model,
        args=TrainingArguments(
            output_dir=str(arguments.output / "checkpoints"),
            learning_rate=recipes_on_sst2.LEARNING_RATE,
            num_train_epochs=recipes_on_sst2.EPOCHS,
            per_device_train_batch_size=arguments.batch_size,
            save_strategy="no",
            report_to="none",
            dataloader_pin_memory=False,
            **recipe_of({}).training,
        ),
        recipe=recipe_of({}),
        train_dataset=tokenize(rows, task, tokenizer, arguments.length),
        data_collator=DataCollatorWithPadding(tokenizer),
        processing_class=tokenizer,
        callbacks=[StopAfter(arguments.steps)],
    )
    trainer.readings, trainer.known = file, known
    trainer.train()


def summary(records: list[dict[str, Any]]) -> dict[str, Any]:
    masks = [record["masks"] for record in records]
    rows = {AGAIN: shares(masks, AGAIN)}
    for settings in SETTINGS:
        # Risks that are kept have other dropout than the exact ones they are compared to, like all the others.
        source = label(at_once(settings)) if at_once(settings) else AGAIN
        rows[label(settings)] = shares(masks, source, settings.get("probe_every", 1))
    return {"steps": len(records), "candidates": len(masks[0]["exact"]), "rows": rows}


def shares(masks: list[dict[str, str]], source: str, every: int = 1) -> dict[str, float]:
    """The share of candidates masked alike as by the exact risk: its mean over the steps, and its least."""
    alike = [share(mask["exact"], masks[step - step % every][source]) for step, mask in enumerate(masks)]
    return {"mean": statistics.mean(alike), "least": min(alike)}


def share(one: str, other: str) -> float:
    return statistics.mean(a == b for a, b in zip(one, other, strict=True))


# Training and steps.


def train(arguments: argparse.Namespace) -> dict[str, Any]:
    rows = {}
    recipes = {"vanilla": load_recipe("vanilla"), **{label(each): recipe_of(each) for each in [{}, *SETTINGS]}}
    for name, recipe in recipes.items():
        output = arguments.output / name.replace(" ", "+") / f"seed-{arguments.seed}"
        recipes_on_sst2.run(recipe, arguments.data_dir, output, arguments.seed)
        rows[name] = recipes_on_sst2.row(name, output)
        save(arguments.figures, {f"train-seed-{arguments.seed}": rows})
    return rows


def steps(arguments: argparse.Namespace) -> dict[str, Any]:
    chosen = [("vanilla", {}), *((RECIPE, overrides(each)) for each in [{}, *SETTINGS])]
    return step_cost.measure(arguments, chosen)


# What is written down.


def save(file: Path, part: dict[str, Any]) -> None:
    file.write_text(json.dumps(load(file) | part, indent=2) + "\n", encoding="utf-8")


def load(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def markdown(figures: dict[str, Any]) -> str:
    """One row a setting; what has not been measured is a dash."""
    alike = figures.get("agreement", {}).get("rows", {})
    timed = figures.get("steps", {}).get("steps", {})
    seeds = [rows for key, rows in figures.items() if key.startswith("train-seed-")]
    lines = [
        "| first-order risk | passes | step / vanilla | masked alike, mean (least) | clean | AdvGLUE |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, key in [("vanilla", "vanilla"), ("exact", step_key({})), (AGAIN, ""), *named_settings()]:
        cost = timed.get(key)
        ratio = f"{cost['mean_seconds'] / timed['vanilla']['mean_seconds']:.2f}" if cost else "–"
        both = alike.get(name)
        agreed = f"{100 * both['mean']:.1f} % ({100 * both['least']:.0f} %)" if both else "–"
        clean, adversarial = (mean_of(seeds, name, column) for column in ("clean", "advglue"))
        passes = cost["passes"] if cost else "–"
        lines.append(f"| {name} | {passes} | {ratio} | {agreed} | {clean} | {adversarial} |")
    return "\n".join(lines)


def named_settings() -> list[tuple[str, str]]:
    return [(label(each), step_key(each)) for each in SETTINGS]


def step_key(settings: dict[str, Any]) -> str:
    return step_cost.label(RECIPE, overrides(settings))


def mean_of(seeds: list[dict[str, Any]], name: str, column: str) -> str:
    values = [rows[name][column] for rows in seeds if name in rows]
    return f"{100 * statistics.mean(values):.1f}" if values else "–"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="+", choices=["agreement", "train", "steps", "table"])
    parser.add_argument("--data-dir", help="the data folder; for agreement and train")
    parser.add_argument("--output", type=Path, default=Path("runs/risk"))
    parser.add_argument("--figures", type=Path, default=Path("benchmarks/risk_readings.json"))
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--steps", type=int, default=200, help="steps of the trajectory whose masks are compared")
    parser.add_argument("--rounds", type=int, default=32, help="a multiple of every probe_every")
    parser.add_argument("--seed", type=int, default=0, help="of the training runs")
    arguments = parser.parse_args()
    if {"agreement", "train"} & set(arguments.what) and arguments.data_dir is None:
        parser.error("agreement and train need --data-dir")
    if "agreement" in arguments.what:
        save(arguments.figures, {"agreement": agreement(arguments)})
    if "train" in arguments.what:
        train(arguments)
    if "steps" in arguments.what:
        save(arguments.figures, {"steps": steps(arguments)})
    Console().print(markdown(load(arguments.figures)), highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
