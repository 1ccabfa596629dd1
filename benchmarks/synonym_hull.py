"""The synonym hull: how strong its adversary is, and how much memory a step needs.

`strength` compares the loss of the mixtures that the adversary finds with the highest loss of 50 texts in which every
word is replaced at random, itself or one of its substitutes, averaged over sentences of the validation split.
`memory` makes one training step of a BERT of base size with random weights, 32 texts of 300 tokens, 10 choices a word,
with gradient checkpointing, and reports the most memory that the process has held. Steps up the hull repeat what the
first one needs, so that two are enough.

    python benchmarks/synonym_hull.py strength --model runs/vanilla/model --data-dir $ROSEWOOD_DATA
    python benchmarks/synonym_hull.py memory rift
"""

from __future__ import annotations

import argparse
import random
import resource
import tempfile
import time
from typing import Any

import torch
from datasets import concatenate_datasets
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import BertConfig, BertForSequenceClassification, DataCollatorWithPadding, TrainingArguments

from rosewood.data.examples import tokenize
from rosewood.data.loading import load_split
from rosewood.data.tasks import load_task
from rosewood.models.open import load_classifier
from rosewood.perturbations.synonym_hull import HullClimber, SynonymHull
from rosewood.protocol import Output
from rosewood.recipe import load_recipe
from rosewood.training.trainer import RobustTrainer
from rosewood.words.alignment import SUBSTITUTES, SubstituteCollator, with_substitutes
from rosewood.words.constraints import Substituting
from rosewood.words.lexicon import Lexicon
from rosewood.words.text import Words

SETTINGS: tuple[dict[str, Any], ...] = (
    *({}, {"at": "words"}, {"entropy_norm": "mean"}, {"steps": 20}, {"loss": "ce"}),
    {"steps": 3, "learning_rate": 3.0},  # as in rift_replication.py
)
BATCH, LENGTH, LAYERS = 32, 300, 9


def divergences(first: Tensor, second: Tensor) -> Tensor:
    p, q = first.log_softmax(1), second.log_softmax(1)
    return (p.exp() * (p - q)).sum(1)


class Strength:
    """A classifier, some sentences, and what is found in their neighbourhood."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.model, self.tokenizer = load_classifier(arguments.model)
        self.model.eval()
        task = load_task(arguments.task)
        rows = load_split(task, "validation", arguments.data_dir, arguments.examples, 0)
        self.field = task.text[-1]
        self.texts: list[str] = rows[self.field][:]
        self.surface = Substituting(Lexicon.named(None, arguments.data_dir)).surface
        encoded = concatenate_datasets([tokenize(rows, task, self.tokenizer), rows.select_columns(task.text)], axis=1)
        aligned = with_substitutes(encoded, self.tokenizer, self.surface, task.text)
        aligned = aligned.remove_columns([*task.text, "length"])
        collate = SubstituteCollator(DataCollatorWithPadding(self.tokenizer))
        starts = range(0, len(rows), BATCH)
        self.batches = [collate([aligned[i] for i in range(s, min(s + BATCH, len(rows)))]) for s in starts]
        self.labels = torch.cat([batch["labels"] for batch in self.batches])
        with torch.no_grad():
            self.clean = torch.cat([self.call(batch).logits for batch in self.batches])

    def call(self, batch: Any, model: Any = None) -> Output:
        found = self.model(**{key: value for key, value in batch.items() if key != SUBSTITUTES})
        return Output(found.loss, found.logits)

    def losses(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        return divergences(self.clean, logits), cross_entropy(logits, self.labels, reduction="none")

    def of_hull(self, settings: dict[str, Any]) -> tuple[Tensor, Tensor]:
        torch.manual_seed(0)
        climber = HullClimber(SynonymHull(**settings), self.model)
        views = [
            climber.view(self.call, batch, self.call(batch)).logits.detach()
            for batch in track(self.batches, description=str(settings or "as published"))
        ]
        return self.losses(torch.cat(views))

    def of_random_texts(self, count: int) -> tuple[Tensor, Tensor]:
        """The highest divergence and the highest cross-entropy of each sentence."""
        choose = random.Random(0).choice
        words = [Words.split(text) for text in self.texts]
        choices = [
            [(word, *found) for word, found in zip(each.words, self.surface(each.words), strict=True)] for each in words
        ]
        divergence = cross = torch.zeros(len(words))
        for _ in track(range(count), description="random texts"):
            texts = [each.join([choose(c) for c in found]) for each, found in zip(words, choices, strict=True)]
            logits = []
            with torch.no_grad():
                for start in range(0, len(texts), BATCH):
                    some = texts[start : start + BATCH]
                    encoded = self.tokenizer(some, truncation=True, max_length=128, padding=True, return_tensors="pt")
                    logits.append(self.model(**encoded).logits)
            found = self.losses(torch.cat(logits))
            divergence, cross = torch.maximum(divergence, found[0]), torch.maximum(cross, found[1])
        return divergence, cross


def strength(arguments: argparse.Namespace) -> None:
    subject = Strength(arguments)
    table = Table(title=f"Mean loss around {len(subject.texts)} sentences of {arguments.task}")
    for column in ("", "KL(f(x) || f(x'))", "CE(f(x'), y)"):
        table.add_column(column, justify="left" if not column else "right")
    rows = {"the text itself": subject.losses(subject.clean)}
    rows[f"worst of {arguments.random} random texts"] = subject.of_random_texts(arguments.random)
    for settings in SETTINGS:
        named = ", ".join(f"{key}={value}" for key, value in settings.items())
        rows[f"hull, {named}" if named else "hull"] = subject.of_hull(settings)
    for name, (divergence, cross) in rows.items():
        table.add_row(name, f"{divergence.mean():.3f}", f"{cross.mean():.3f}")
    Console().print(table)


def memory(arguments: argparse.Namespace) -> None:
    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig())
    recipe = load_recipe(arguments.recipe, {"perturbation.steps": 2})
    ids = torch.randint(1000, 30000, (BATCH, LENGTH))
    tokens = torch.randint(1000, 30000, (BATCH, LAYERS, LENGTH))
    slots = torch.arange(1, LAYERS + 1)[None, :, None].expand(tokens.shape).contiguous()
    substitutes = {
        "tokens": tokens,
        "slots": slots,
        "shares": torch.ones(tokens.shape, dtype=torch.float64),
        "words": torch.arange(LENGTH).repeat(BATCH, 1),
    }
    examples = [
        {"input_ids": ids[i], "labels": i % 2, SUBSTITUTES: {key: value[i] for key, value in substitutes.items()}}
        for i in range(BATCH)
    ]

    class OneBatch(RobustTrainer):
        def get_train_dataloader(self) -> Any:
            self.data_collator = torch.utils.data.default_collate
            return torch.utils.data.DataLoader(examples, batch_size=BATCH, collate_fn=self.data_collator)  # type: ignore[arg-type]

    with tempfile.TemporaryDirectory() as directory:
        settings = TrainingArguments(
            directory,
            max_steps=1,
            gradient_checkpointing=True,
            gradient_checkpointing_kwargs={"use_reentrant": False},
            report_to="none",
            save_strategy="no",
            use_cpu=True,
        )
        began = time.perf_counter()
        OneBatch(model, settings, recipe=recipe, train_dataset=examples).train()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    Console().print(
        f"{arguments.recipe}: one step of {BATCH} x {LENGTH} tokens, {LAYERS + 1} choices a word, two steps uphill: "
        f"at most {peak:.1f} GiB, {time.perf_counter() - began:.0f} s",
        highlight=False,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    first = commands.add_parser("strength")
    first.add_argument("--model", required=True)
    first.add_argument("--task", default="sst2")
    first.add_argument("--data-dir")
    first.add_argument("--examples", type=int, default=200)
    first.add_argument("--random", type=int, default=50)
    first.set_defaults(run=strength)
    second = commands.add_parser("memory")
    second.add_argument("recipe", nargs="?", default="rift")
    second.set_defaults(run=memory)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
