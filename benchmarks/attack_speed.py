"""How fast attacks run: against one example at a time, and against the bare model on the same texts.

Five ways through the same search on the same sentences, in one process:

- rosewood: `rosewood.attack`, the questions of many examples merged into full batches;
- rosewood in bfloat16: the same with `precision="bfloat16"`, each success confirmed in float32; left out where the
  hardware has no kernels for it, unless --only asks for it;
- one example at a time: a plain loop over examples, each question of the same attack a batch of its own;
- one text at a time: the same loop, without batches;
- bare forward: nothing but the model, on all the texts that the attack asked for, tokenized, sorted by length and
  padded beforehand. Rosewood's queries per second as a share of this say what the search itself costs.

Both ratios, against the loop over examples and against the bare forward, are in the table.
They run in `--rounds` turns, so that a noisy machine is equally unkind to all; figures are medians. Seconds are those
of CPU time in one thread (OMP_NUM_THREADS=1), which other programs disturb less than a clock.

    export ROSEWOOD_DATA=...
    python benchmarks/attack_speed.py pwws --model runs/x/model --examples 60
    python benchmarks/attack_speed.py genetic --model runs/x/model --examples 100 --rounds 1 --only rosewood
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from rosewood import Lexicon, attack, load_task
from rosewood.attacks.runner.attack import Attack
from rosewood.attacks.runner.cases import OneLabel
from rosewood.attacks.runner.example import Attempt, Doubt
from rosewood.attacks.runner.search import Resources
from rosewood.attacks.runner.slopes import Point
from rosewood.data.loading import load_split
from rosewood.models.modes import evaluating, has_bfloat16
from rosewood.models.open import load_classifier
from rosewood.models.scoring import Row, Scorer
from rosewood.recipe import build_component
from rosewood.words.language_models import SentenceEncoder, Trigram
from rosewood.words.text import Words

BFLOAT16 = "rosewood in bfloat16"
WAYS = ("rosewood", BFLOAT16, "one example at a time", "one text at a time", "bare forward")


class Contest:
    """The same attack on the same sentences, five ways."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.model, self.tokenizer = load_classifier(arguments.model)
        task = load_task(arguments.task)
        self.field = task.text[-1]
        self.data: Dataset = load_split(task, "test", arguments.data_dir, size=arguments.examples)
        chosen = build_component("attack", arguments.attack)
        assert isinstance(chosen, Attack)
        self.attack = chosen
        self.resources = Resources(Lexicon.counter_fitted(arguments.data_dir))
        if chosen.lacks(self.resources):
            train = load_split(task, "train", arguments.data_dir)[self.field][:]
            encoder = SentenceEncoder.load() if arguments.attack == "textfooler" else None
            self.resources = Resources(self.resources.lexicon, Trigram.fit(train), encoder=encoder)
        self.batch_size = arguments.batch_size
        self.asked: list[Row] = []  # every text that the loop over examples asked for

    def rosewood(self, precision: str = "float32") -> dict[str, Any]:
        began = time.process_time()
        result = attack(
            self.model,
            self.tokenizer,
            self.data,
            self.attack,
            lexicon=self.resources.lexicon,
            language_model=self.resources.language_model,
            encoder=self.resources.encoder,
            batch_size=self.batch_size,
            precision=precision,
        )
        queries = sum(example.queries for example in result.examples)
        seconds = time.process_time() - began
        return {"seconds": seconds, "queries": queries, **result.summary.model_dump(include={"counts"})}

    def rosewood_in_bfloat16(self) -> dict[str, Any]:
        return self.rosewood("bfloat16")

    def one_example_at_a_time(self) -> dict[str, Any]:
        return self._loop(size=None)

    def one_text_at_a_time(self) -> dict[str, Any]:
        return self._loop(size=1)

    def _loop(self, size: int | None) -> dict[str, Any]:
        began, counts = time.process_time(), dict[str, int]()
        self.asked = []
        with evaluating(self.model), torch.inference_mode():
            for attempt in self._attempts():
                questions = attempt.questions()
                asked = next(questions)
                while True:
                    rows = [row for row in asked if not isinstance(row, Point | Doubt)]
                    self.asked += rows
                    try:
                        asked = questions.send(
                            [
                                each
                                for i in range(0, len(rows), size or len(rows))
                                for each in self._logits(rows[i:][:size])
                            ]
                        )
                    except StopIteration as end:
                        counts[end.value] = counts.get(end.value, 0) + 1
                        break
        return {"seconds": time.process_time() - began, "queries": len(self.asked), "counts": counts}

    def bare_forward(self) -> dict[str, Any]:
        columns = [list(column) for column in zip(*self.asked, strict=True)]
        encoded = self.tokenizer(*columns, truncation=True, max_length=128)
        order = sorted(range(len(self.asked)), key=lambda row: -len(encoded["input_ids"][row]))
        batches = [
            self.tokenizer.pad(
                {
                    key: [values[row] for row in order[start : start + self.batch_size]]
                    for key, values in encoded.items()
                },
                return_tensors="pt",
            ).to(self.model.device)
            for start in range(0, len(order), self.batch_size)
        ]
        with evaluating(self.model), torch.inference_mode():
            began = time.process_time()
            for batch in batches:
                self.model(**batch).logits.cpu()
        return {"seconds": time.process_time() - began, "queries": len(self.asked)}

    def _logits(self, rows: list[Row]) -> list[NDArray[np.float64]]:
        columns = [list(column) for column in zip(*rows, strict=True)]
        batch = self.tokenizer(*columns, truncation=True, max_length=128, padding=True, return_tensors="pt")
        return list(self.model(**batch.to(self.model.device)).logits.double().cpu().numpy())

    def _attempts(self) -> Iterator[Attempt]:
        scorer = Scorer(self.model, self.tokenizer)
        fields = self.data.column_names[: self.data.column_names.index("label")]
        for row, example in enumerate(self.data):
            texts = {field: example[field] for field in fields}
            end = scorer.visible(tuple(texts.values()), len(fields) - 1)
            words = Words.split(texts[self.field], self.attack.word_pattern(), self.tokenizer.all_special_tokens, end)
            goal = OneLabel(example["label"])
            yield Attempt(self.attack, row, texts, self.field, words, goal, self.resources, 0, None)


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    contest = Contest(arguments)
    ways: dict[str, Callable[[], dict[str, Any]]] = {
        "rosewood": contest.rosewood,
        BFLOAT16: contest.rosewood_in_bfloat16,
        "one example at a time": contest.one_example_at_a_time,
        "one text at a time": contest.one_text_at_a_time,
        "bare forward": contest.bare_forward,
    }
    has_kernels = has_bfloat16(contest.model.device)
    usual = [way for way in WAYS if way != BFLOAT16 or has_kernels]
    chosen = [way for way in WAYS if way in (arguments.only or usual)]
    turns: dict[str, list[dict[str, Any]]] = {way: [] for way in chosen}
    contest.model(**contest.tokenizer(["warm up"] * 8, return_tensors="pt").to(contest.model.device))
    for _ in range(arguments.rounds):
        for way in chosen:
            turns[way].append(ways[way]())
    figures = {}
    for way, found in turns.items():
        seconds = statistics.median(each["seconds"] for each in found)
        figures[way] = {**found[0], "seconds": seconds, "queries_per_second": found[0]["queries"] / seconds}
    return {
        "attack": arguments.attack,
        "model": Path(arguments.model).parent.name,
        "task": arguments.task,
        "examples": len(contest.data),
        "batch_size": arguments.batch_size,
        "threads": torch.get_num_threads(),
        "rounds": arguments.rounds,
        "bfloat16_kernels": has_kernels,
        "ways": figures,
    }


def show(result: dict[str, Any]) -> None:
    ways = result["ways"]
    table = Table(
        title=f"{result['attack']} on {result['examples']} examples of {result['task']}, {result['threads']} threads",
        caption=f"medians of {result['rounds']} rounds, batches of {result['batch_size']}",
    )
    for column in ("way", "CPU seconds", "queries", "queries/s", "broken", "times the loop", "share of bare forward"):
        table.add_column(column, justify="left" if column == "way" else "right")
    loop, bare = (ways.get(way, {}).get("queries_per_second", np.nan) for way in (WAYS[2], WAYS[4]))
    for way, row in ways.items():
        table.add_row(
            way,
            f"{row['seconds']:.1f}",
            str(row["queries"]),
            f"{row['queries_per_second']:.1f}",
            str(row["counts"].get("broken", 0)) if "counts" in row else "",
            f"{row['queries_per_second'] / loop:.2f}" if loop == loop else "",
            f"{row['queries_per_second'] / bare:.0%}" if bare == bare else "",
        )
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("attack", nargs="?", default="pwws")
    parser.add_argument("--model", required=True, help="folder of a classifier fine-tuned on the task")
    parser.add_argument("--task", default="sst2")
    parser.add_argument("--data-dir", help="data folder; ROSEWOOD_DATA by default")
    parser.add_argument("--examples", type=int, default=60)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", action="append", choices=WAYS, help="leave out the other ways; may be repeated")
    parser.add_argument("--output", type=Path, help="write the figures as JSON")
    arguments = parser.parse_args()
    if arguments.only and "bare forward" in arguments.only and "one example at a time" not in arguments.only:
        parser.error("the bare forward runs on the texts of `one example at a time`: choose both")
    result = measure(arguments)
    show(result)
    if arguments.output:
        arguments.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
