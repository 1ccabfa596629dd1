"""What a training step of each recipe costs, as a ratio to plain fine-tuning, beside its floor.

Every contestant takes one step in turn, many rounds in one process, so that a noisy machine is equally unkind to
all of them; the figures are medians over the rounds, of the processor's time where there is no accelerator. What the
data loader prepares, substitutes of words included, is not part of a step; substitutes are as long as words, so that
all texts keep their length. F, B and X are a forward, a full backward and a backward to the inputs only, measured in
the same rounds. The floor of a recipe is its passes divided by F + B: what it would cost if everything but the passes
were free.

    python benchmarks/step_cost.py --rounds 30 --output benchmarks/step_cost.json
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import nn
from transformers import AutoModelForSequenceClassification, TrainingArguments

from rosewood.models.names import resolve_model
from rosewood.models.parameters import attach
from rosewood.protocol import Cost
from rosewood.recipe import Recipe, load_recipe, recipe_names
from rosewood.training.trainer import RobustTrainer
from rosewood.words.alignment import SUBSTITUTES
from rosewood.words.changes import collate_changes, packed

ONE_PASS: dict[str, Any] = {"objective.passes": 1}
VARIANTS: list[tuple[str, dict[str, Any]]] = [("rose-first", ONE_PASS), ("rose-ensemble", ONE_PASS)]


clock = time.perf_counter if torch.accelerator.is_available() else time.process_time
LAYERS, REPLACEABLE = 8, 0.4  # substitutes of a word, and words that have any, about as in SST-2


def batches(count: int, size: int, length: int, vocabulary: int) -> list[dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    return [
        {
            "input_ids": torch.randint(1000, vocabulary, (size, length), generator=generator),
            "attention_mask": torch.ones(size, length, dtype=torch.long),
            "labels": torch.randint(0, 2, (size,), generator=generator),
        }
        for _ in range(count)
    ]


def with_substitutes(batch: dict[str, Any]) -> dict[str, Any]:
    """The batch with made-up substitutes of one token each."""
    generator = torch.Generator().manual_seed(0)
    size, length = batch["input_ids"].shape
    there = torch.rand(size, 1, length, generator=generator).lt(REPLACEABLE).expand(-1, LAYERS, -1)
    slots = torch.arange(1, LAYERS + 1)[None, :, None] * there
    others = torch.randint(1000, 30000, there.shape, generator=generator)
    tokens = torch.where(there, others, batch["input_ids"][:, None])
    words = torch.arange(length).expand(size, -1)
    return batch | {SUBSTITUTES: {"tokens": tokens, "slots": slots, "shares": there.double(), "words": words}}


def changes(ids: torch.Tensor) -> dict[str, torch.Tensor]:
    """Made-up changes of words of one token to words of one token."""
    generator = torch.Generator().manual_seed(0)
    rows = []
    for row in ids.tolist():
        words = [place for place in range(len(row)) if torch.rand((), generator=generator) < REPLACEABLE]
        choices = torch.randint(1000, 30000, (len(words), LAYERS, 1), generator=generator).tolist()
        rows.append(packed([([place], each) for place, each in zip(words, choices, strict=True)], room=len(row)))
    return collate_changes(rows, [{"input_ids": row} for row in ids.tolist()], ids)


def prepared(batch: dict[str, Any], recipe: Recipe | None) -> dict[str, Any]:
    """The batch with the columns that a recipe reads."""
    columns = set() if recipe is None else set(recipe.columns())
    batch = with_substitutes(batch) if SUBSTITUTES in columns else batch
    return batch | {column: changes(batch["input_ids"]) for column in columns - {SUBSTITUTES}}


def plain_step(model: nn.Module) -> Callable[[dict[str, torch.Tensor]], None]:
    """The loop anybody would write: forward, backward, clip, fused AdamW."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.01, fused=True)

    def step(batch: dict[str, torch.Tensor]) -> None:
        model(**batch).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    model.train()
    return step


def recipe_step(model: nn.Module, recipe: Recipe, data: Any, directory: str) -> Callable[[Any], None]:
    """One step of RobustTrainer, without the loop around it, on a batch that `prepared` made."""
    arguments = TrainingArguments(
        output_dir=directory,
        learning_rate=1e-5,
        weight_decay=0.01,
        report_to="none",
        use_cpu=not torch.cuda.is_available(),
    )
    examples = [{key: value[0] for key, value in batch.items()} for batch in data]  # for a pass before training
    examples = [example | {name: {} for name in recipe.columns()} for example in examples]
    trainer = RobustTrainer(model, arguments, recipe=recipe, train_dataset=examples)
    attach(model, trainer._beside)
    trainer.create_optimizer_and_scheduler(1_000_000)
    trainer.optimizer = trainer.accelerator.prepare(trainer.optimizer)
    trainer.current_gradient_accumulation_steps = 1

    def step(batch: dict[str, Any]) -> None:
        trainer.get_batch_samples(iter([batch]), 1, next(model.parameters()).device)
        trainer.training_step(model, batch)
        trainer._get_grad_norm(model, trainer._clip_grad_norm(model))
        trainer.optimizer.step()
        model.zero_grad()
        trainer.state.global_step += 1

    return step


class Passes:
    """Times a forward, a full backward and a backward to the inputs only."""

    def __init__(self, model: Any) -> None:
        self.model = model.train()

    def measure(self, batch: dict[str, torch.Tensor]) -> tuple[float, float, float]:
        start = clock()
        loss = self.model(**batch).loss
        forward = clock()
        loss.backward()
        backward = clock()
        self.model.zero_grad()
        embedded = self.model.get_input_embeddings()(batch["input_ids"]).detach().requires_grad_()
        loss = self.model(inputs_embeds=embedded, attention_mask=batch["attention_mask"], labels=batch["labels"]).loss
        begin = clock()
        torch.autograd.grad(loss, embedded)
        return forward - start, clock() - begin, backward - forward


def contestants(chosen: list[str]) -> list[tuple[str, dict[str, Any]]]:
    """The recipes to measure, plain fine-tuning first."""
    names = chosen or recipe_names()
    variants: list[tuple[str, dict[str, Any]]] = [(name, overrides) for name, overrides in VARIANTS if name in names]
    return [("vanilla", {}), *((name, {}) for name in names if name != "vanilla"), *variants]


def label(recipe: str, overrides: dict[str, Any]) -> str:
    return " ".join([recipe, *(f"{key}={value}" for key, value in overrides.items())])


def measure(arguments: argparse.Namespace, chosen: list[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    model = AutoModelForSequenceClassification.from_pretrained(resolve_model(arguments.model), num_labels=2)
    data = batches(8, arguments.batch_size, arguments.length, model.config.vocab_size)
    passes = Passes(copy.deepcopy(model))
    steps = {"plain torch": plain_step(copy.deepcopy(model))}
    floors = {"plain torch": Cost(forward=1, backward=1)}
    recipes: dict[str, Recipe] = {}
    with tempfile.TemporaryDirectory() as directory:
        for name, overrides in chosen:
            recipe = load_recipe(name, overrides)
            key = label(name, overrides)
            recipes[key] = recipe
            steps[key] = recipe_step(copy.deepcopy(model), recipe, data, directory)
            floors[key] = recipe.cost()
        data_of = {name: [prepared(batch, recipes.get(name)) for batch in data] for name in steps}
        times: dict[str, list[float]] = {name: [] for name in steps}
        parts: list[tuple[float, float, float]] = []
        for i in track(range(arguments.rounds + 2), description="rounds"):
            batch = data[i % len(data)]
            part = passes.measure(batch)
            for name, step in steps.items():
                own = data_of[name][i % len(data)]
                start = clock()
                step(own)
                times[name].append(clock() - start)
            parts.append(part)
    # The first two rounds warm up allocator and optimiser state.
    forward, inputs, backward = (statistics.median(column) for column in zip(*parts[2:], strict=True))
    plain = times["plain torch"][2:]
    rows = {}
    for name, series in times.items():
        ratios = [mine / base for mine, base in zip(series[2:], plain, strict=True)]
        f, x, b = floors[name]
        rows[name] = {
            "seconds": statistics.median(series[2:]),
            "mean_seconds": statistics.mean(series[2:]),  # for recipes whose steps differ
            "ratio": statistics.median(ratios),
            "floor": (f * forward + x * inputs + b * backward) / (forward + backward),
            "passes": str(floors[name]),
        }
    return {
        "model": arguments.model,
        "batch": [arguments.batch_size, arguments.length],
        "threads": torch.get_num_threads(),
        "rounds": arguments.rounds,
        "forward_seconds": forward,
        "inputs_backward_seconds": inputs,
        "backward_seconds": backward,
        "steps": rows,
    }


def show(result: dict[str, Any]) -> None:
    batch, length = result["batch"]
    table = Table(
        title=f"Step cost, {result['model']}, batch {batch} x {length}, {result['threads']} threads",
        caption=f"F {result['forward_seconds']:.3f} s, B {result['backward_seconds']:.3f} s, "
        f"X {result['inputs_backward_seconds']:.3f} s; medians of {result['rounds']} rounds",
    )
    for column in ("recipe", "passes", "seconds", "ratio", "floor", "ratio / floor"):
        table.add_column(column, justify="left" if column == "recipe" else "right")
    for name, row in result["steps"].items():
        table.add_row(
            name,
            row["passes"],
            f"{row['seconds']:.3f}",
            f"{row['ratio']:.3f}",
            f"{row['floor']:.3f}",
            f"{row['ratio'] / row['floor']:.3f}",
        )
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="*", help="recipes to measure; all if none is named")
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--output", type=Path, help="write the figures as JSON")
    arguments = parser.parse_args()
    result = measure(arguments, contestants(arguments.recipes))
    show(result)
    if arguments.output:
        arguments.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
