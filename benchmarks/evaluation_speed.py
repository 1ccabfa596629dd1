"""How fast a suite runs against the bare model on the same texts, and how much memory a large set takes.

- suite: `rosewood.evaluate` with nothing cached, from reading the files to the written predictions;
- bare forward: nothing but the model, on the distinct texts of the suite, tokenized, sorted by length and padded
  beforehand;
- cached: the suite again, with all predictions kept: what everything but the model costs;
- memory: the largest resident size of a process that evaluates a tiny random model on one set of many examples.

Suite and bare forward run in `--rounds` turns, so that a noisy machine is equally unkind to both; figures are medians.

    export ROSEWOOD_DATA=...
    python benchmarks/evaluation_speed.py suite --model runs/x/model --suite sentiment
    python benchmarks/evaluation_speed.py memory --examples 100000
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from random import Random
from typing import Any

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

from rosewood import evaluate, load_suite
from rosewood.data.suites import Suite
from rosewood.evaluation.metrics import anomaly_sets
from rosewood.evaluation.predict import TextQuery
from rosewood.evaluation.sets import load_sets, plan_of_suite
from rosewood.models.modes import evaluating
from rosewood.models.open import load_classifier

BATCH = 64


def distinct_questions(suite: Suite, data_dir: str | None, size: int | None, longest: int) -> list[TextQuery]:
    """What the suite asks the model, each text once."""
    plan = plan_of_suite(suite)
    loaded, _ = load_sets(plan, data_dir, size, 0, longest=longest)
    asked = [each for each in loaded if each.planned.role not in ("anomaly", "reference")]
    asked += anomaly_sets(loaded, plan.inside)
    return list(dict.fromkeys(question for each in asked for question in each.questions))


def bare_forward(model: Any, tokenizer: Any, questions: list[TextQuery]) -> float:
    """Seconds in the model alone."""
    kinds: dict[tuple[int, int], list[TextQuery]] = defaultdict(list)
    for question in questions:
        kinds[question.max_length, len(question.texts)].append(question)
    seconds = 0.0
    with evaluating(model), torch.inference_mode():
        for (limit, _), group in kinds.items():
            columns = [list(column) for column in zip(*(question.texts for question in group), strict=True)]
            encoded = tokenizer(*columns, truncation=True, max_length=limit)
            order = sorted(range(len(group)), key=lambda row: -len(encoded["input_ids"][row]))
            for start in range(0, len(order), BATCH):
                rows = order[start : start + BATCH]
                batch = tokenizer.pad(
                    {key: [values[row] for row in rows] for key, values in encoded.items()}, return_tensors="pt"
                )
                began = time.perf_counter()
                model(**batch)
                seconds += time.perf_counter() - began
    return seconds


def suite_speed(arguments: argparse.Namespace) -> dict[str, Any]:
    """The suite in turns with the bare forward, then once more from the cache."""
    model, tokenizer = load_classifier(arguments.model)
    suite = load_suite(arguments.suite)
    questions = distinct_questions(suite, arguments.data_dir, arguments.size, tokenizer.model_max_length)
    times: dict[str, list[float]] = defaultdict(list)
    for _ in range(arguments.rounds):
        times["bare forward"].append(bare_forward(model, tokenizer, questions))
        with tempfile.TemporaryDirectory() as folder:
            for name in ("suite", "cached"):
                began = time.perf_counter()
                evaluate(model, tokenizer, suite, arguments.data_dir, arguments.size, BATCH, output=folder)
                times[name].append(time.perf_counter() - began)
    medians = {name: round(statistics.median(found), 2) for name, found in times.items()}
    ratios = [whole / bare for whole, bare in zip(times["suite"], times["bare forward"], strict=True)]
    return {
        "suite": suite.name,
        "distinct texts": len(questions),
        "threads": torch.get_num_threads(),
        "seconds": medians,
        "suite / bare forward": round(statistics.median(ratios), 3),
    }


def peak_memory(arguments: argparse.Namespace) -> dict[str, Any]:
    """One large clean set through a tiny model, in this process."""
    with tempfile.TemporaryDirectory() as folder:
        rng = Random(0)
        words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 9))) for _ in range(5000)]
        with (Path(folder) / "large.jsonl").open("w") as file:
            for row in range(arguments.examples):
                text = " ".join(rng.choices(words, k=rng.randint(5, 40)))
                file.write(json.dumps({"text": text, "label": ("negative", "positive")[row % 2]}) + "\n")
        large = {"role": "clean", "title": "large", "folder": {"file": "large.jsonl"}}
        suite = Suite.model_validate(
            {
                "name": "large",
                "title": "Large",
                "text": ["text"],
                "labels": ["negative", "positive"],
                "sets": {"large": large},
            }
        )
        model, tokenizer = _tiny()
        before = _resident_gibibytes()
        began = time.perf_counter()
        evaluate(model, tokenizer, suite, folder, batch_size=BATCH, output=Path(folder) / "run")
        return {
            "examples": arguments.examples,
            "GiB before": before,
            "GiB at most": _resident_gibibytes(),
            "seconds": round(time.perf_counter() - began, 1),
        }


def _resident_gibibytes() -> float:
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 3)


def _tiny() -> tuple[BertForSequenceClassification, PreTrainedTokenizerFast]:
    letters = "abcdefghijklmnopqrstuvwxyz"
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *letters, *(f"##{letter}" for letter in letters)]
    backend = Tokenizer(models.WordPiece({name: number for number, name in enumerate(names)}, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, model_max_length=128, pad_token="[PAD]", unk_token="[UNK]"
    )
    config = BertConfig(
        vocab_size=len(names),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=128,
        id2label={0: "negative", 1: "positive"},
        label2id={"negative": 0, "positive": 1},
    )
    torch.manual_seed(0)
    return BertForSequenceClassification(config), tokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("suite", "memory"))
    parser.add_argument("--model", help="a classifier with the labels of the suite")
    parser.add_argument("--suite", default="sentiment")
    parser.add_argument("--data-dir")
    parser.add_argument("--size", type=int, help="at most this many examples of each set")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--examples", type=int, default=100_000)
    arguments = parser.parse_args()
    if arguments.what == "suite" and arguments.model is None:
        parser.error("suite needs --model")
    found = suite_speed(arguments) if arguments.what == "suite" else peak_memory(arguments)
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
