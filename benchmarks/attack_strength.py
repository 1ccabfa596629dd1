"""Strength against cost: several attacks on the same sentences, with the same substitutes.

For each attack: examples broken, forward passes (a backward pass counts as two), both also as a share of those of the
first attack, and the seconds of CPU time that it took. Attacks run in turn in one process.

    export ROSEWOOD_DATA=...
    python benchmarks/attack_strength.py pwws gradient gradient:trim=false --model runs/x/model --examples 100
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from rosewood import attack, load_task
from rosewood.attacks.runner.api import choose_attack, provisions
from rosewood.config.strict_yaml import parse_overrides
from rosewood.data.loading import load_split
from rosewood.models.open import load_classifier


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    model, tokenizer = load_classifier(arguments.model)
    task = load_task(arguments.task)
    data = load_split(task, arguments.split, arguments.data_dir, size=arguments.examples)
    found: dict[str, dict[str, Any]] = {}
    for chosen in arguments.attacks:
        name, _, settings = chosen.partition(":")
        method = choose_attack(name, parse_overrides(settings.split(",") if settings else []))
        resources = provisions(method, task, arguments.data_dir, arguments.lexicon)
        began = time.process_time()
        result = attack(
            model,
            tokenizer,
            data,
            method,
            lexicon=resources.lexicon,
            language_model=resources.language_model,
            encoder=resources.encoder,
            max_length=arguments.max_length,
            progress=False,
        )
        found[chosen] = {
            "right": sum(example.status != "wrong" for example in result.examples),
            "broken": result.summary.counts.get("broken", 0),
            "passes": sum(example.queries for example in result.examples),
            "changed_words": result.summary.changed_words,
            "cpu_seconds": round(time.process_time() - began, 1),
        }
    return {
        "model": arguments.model,
        "task": arguments.task,
        "split": arguments.split,
        "lexicon": arguments.lexicon,
        "examples": len(data),
        "threads": torch.get_num_threads(),
        "attacks": found,
    }


def show(result: dict[str, Any]) -> None:
    table = Table(title=f"{result['examples']} examples of {result['task']} {result['split']}")
    for column in ("attack", "broken", "passes", "of the first", "% of words", "CPU seconds"):
        table.add_column(column, justify="left" if column == "attack" else "right")
    first = next(iter(result["attacks"].values()))
    for name, row in result["attacks"].items():
        table.add_row(
            name,
            f"{row['broken']} of {row['right']}",
            str(row["passes"]),
            f"{row['passes'] / first['passes']:.2f}",
            f"{100 * (row['changed_words'] or 0):.0f}",
            f"{row['cpu_seconds']:.1f}",
        )
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("attacks", nargs="+", help="NAME or NAME:SETTING=VALUE,SETTING=VALUE; shares are of the first")
    parser.add_argument("--model", required=True, help="folder of a classifier fine-tuned on the task")
    parser.add_argument("--task", default="sst2")
    parser.add_argument("--split", default="test")
    parser.add_argument("--data-dir", help="data folder; ROSEWOOD_DATA by default")
    parser.add_argument("--lexicon", help="as in rosewood attack")
    parser.add_argument("--examples", type=int, default=100)
    parser.add_argument("--max-length", type=int, default=64)
    parser.add_argument("--output", type=Path, help="write the figures as JSON")
    arguments = parser.parse_args()
    result = measure(arguments)
    show(result)
    if arguments.output:
        arguments.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
