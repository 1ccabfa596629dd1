"""Strength against cost: several attacks on the same sentences, with the same substitutes.

For each attack: examples broken, those whose edit passes the filter of meaning, forward passes (a backward pass counts
as two) for an example, also as a share of those of the first attack, the seconds of CPU time of an example, and what of
the text changed. Attacks run in turn in one process; without names, all that need no masked language model.

    export ROSEWOOD_DATA=...
    python benchmarks/attack_strength.py --model runs/x/model --examples 60
    python benchmarks/attack_strength.py pwws gradient gradient:trim=false --model runs/x/model --examples 100
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from rosewood import attack, load_task
from rosewood.attacks.runner.api import choose_attack, resources_for
from rosewood.config.strict_yaml import parse_overrides
from rosewood.data.loading import load_split
from rosewood.models.open import load_classifier
from rosewood.words.language_models import SentenceEncoder

ATTACKS = [
    "pwws",
    "gradient",
    "textfooler",
    "genetic:population=20,generations=10",
    "worst",
    "typos",
    "gradient:edits=characters,max_words_share=0.2",
    "textbugger",
    "imperceptible",
    "worst:threat=characters",
]


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    model, tokenizer = load_classifier(arguments.model)
    task = load_task(arguments.task)
    data = load_split(task, arguments.split, arguments.data_dir, size=arguments.examples)
    found: dict[str, dict[str, Any]] = {}
    encoder = SentenceEncoder.load()
    for chosen in arguments.attacks or ATTACKS:
        name, _, settings = chosen.partition(":")
        method = choose_attack(name, parse_overrides(settings.split(",") if settings else []))
        resources = resources_for(method, task, arguments.data_dir, arguments.lexicon)
        began = time.process_time()
        result = attack(
            model,
            tokenizer,
            data,
            method,
            lexicon=resources.lexicon,
            language_model=resources.language_model,
            encoder=encoder,
            max_length=arguments.max_length,
            progress=False,
        )
        assert result.summary.filtered is not None
        found[chosen] = {
            "right": sum(example.status != "wrong" for example in result.examples),
            "broken": result.summary.counts.get("broken", 0),
            "passed": result.summary.filtered.passed,
            "failed": result.summary.filtered.failed,
            "passes": sum(example.queries for example in result.examples),
            "changed_words": result.summary.changed_words,
            "similarity": result.summary.similarity,
            "cpu_seconds": round(time.process_time() - began, 1),
        }
        print(f"{chosen}: {found[chosen]}", file=sys.stderr, flush=True)
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
    columns = ("attack", "broken", "filtered", "passes", "of the first", "CPU seconds", "% of words", "cosine")
    for column in columns:
        table.add_column(column, justify="left" if column == "attack" else "right")
    first = next(iter(result["attacks"].values()))
    for name, row in result["attacks"].items():
        table.add_row(
            name,
            f"{row['broken']} of {row['right']}",
            str(row["passed"]),
            f"{row['passes'] / result['examples']:.0f}",
            f"{row['passes'] / first['passes']:.2f}",
            f"{row['cpu_seconds'] / result['examples']:.2f}",
            f"{100 * (row['changed_words'] or 0):.0f}",
            f"{row['similarity'] or 0:.2f}",
        )
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("attacks", nargs="*", help="NAME or NAME:SETTING=VALUE,SETTING=VALUE; shares are of the first")
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
