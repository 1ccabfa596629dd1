"""A hardening of seconds: a tiny classifier of words that typos hide, and time that is counted, not measured."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import torch
from rich.console import Console
from transformers import BertConfig, BertModel

from rosewood.data.tasks import load_task
from rosewood.experiments.harden.harden import harden
from rosewood.experiments.harden.schedule import Stopwatch
from rosewood.recipe import load_recipe
from rosewood.results import Hardening
from rosewood.training.run import Plan, finish_run
from tiny_text import VOCABULARY, tokenizer_of

GOOD, BAD = ("good", "great", "lovely"), ("bad", "awful", "boring")
HIDDEN = {"good": "bonny", "great": "super", "lovely": "nifty", "bad": "lousy", "awful": "grim", "boring": "stale"}
"""What replaces a word in an attack, and is in no text: only who trains on it can know what it means."""
FILLING = ("film", "the", "a", "it", "this", "scene", "story", "actor", "with", "and")
RECIPE = """
title: Substitution
summary: Learns from replaced words.
objective: {{name: consistency, clean_weight: 0.5, perturbed_weight: 0.5, divergence_weight: 1.0}}
perturbation: {{name: substitution, lexicon: {lexicon}, pick: random, share: 0.5}}
"""
TRAINING = {"learning_rate": 1e-2, "per_device_train_batch_size": 16}


def save_encoder(folder: Path) -> Path:
    """A tiny model that reads these words as wholes, and has no head."""
    words = [*GOOD, *BAD, *HIDDEN.values(), *FILLING]
    tokenizer = tokenizer_of(list(dict.fromkeys([*VOCABULARY, *words])))
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=64,
        initializer_range=0.2,
    )
    BertModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def rows(count: int, seed: int) -> list[str]:
    rng, found = Random(seed), []
    for number in range(count):
        words = rng.choices(FILLING, k=5)
        words.insert(rng.randrange(6), rng.choice(GOOD if number % 2 else BAD))
        found.append(f"{' '.join(words)} {rng.choice('abcdefgh')}{rng.choice('abcdefgh')},{number % 2}")
    return found


def write_rows(file: Path, count: int, seed: int) -> Path:
    file.write_text("\n".join(["text,label", *rows(count, seed)]) + "\n", encoding="utf-8")
    return file


@dataclass
class Counted(Stopwatch):
    """Steps and attacked rows cost what they are said to, wherever they are found on the disk."""

    a_step: dict[str, float] = field(default_factory=dict)
    a_row: float = 0.1
    slower: float = 1.0
    """How many times as long things take as was measured."""

    def spent(self, output: Path) -> float:
        steps = sum(
            self.a_step.get(file.parent.parent.name, 1.0) * len(file.read_text(encoding="utf-8").splitlines())
            for file in output.glob("candidates/*/run/history.jsonl")
        )
        attacked = sum(len(file.read_text(encoding="utf-8").splitlines()) for file in output.rglob("examples.jsonl"))
        return self.slower * (steps + self.a_row * attacked)

    def step(self, plan: Plan, candidate: str) -> float:
        return self.a_step.get(candidate, 1.0)

    def of(self, what: str, seconds: float) -> float:
        return self.a_row / 1.5 if what == "attacked_row" else 0.0


class Place:
    """Data and models on which to harden."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.encoder = save_encoder(folder / "encoder")
        self.train, self.test = write_rows(folder / "train.csv", 500, 1), write_rows(folder / "test.csv", 120, 2)
        self.lexicon = folder / "words.json"
        self.lexicon.write_text(json.dumps({word: [other] for word, other in HIDDEN.items()}), encoding="utf-8")
        (folder / "substitution.yaml").write_text(RECIPE.format(lexicon=self.lexicon), encoding="utf-8")
        self.best = str(folder / "substitution.yaml")
        """The recipe that is known to be the best here."""

    @classmethod
    def existing(cls, folder: Path) -> Place:
        """A place that another process has made."""
        found = cls.__new__(cls)
        found.folder, found.lexicon = folder, folder / "words.json"
        found.train, found.test = folder / "train.csv", folder / "test.csv"
        found.encoder, found.best = folder / "encoder", str(folder / "substitution.yaml")
        return found

    def classifier(self, steps: int = 45, name: str = "plain") -> str:
        """The encoder, fine-tuned plainly."""
        task = self.folder / "plain.yaml"
        task.write_text(
            "name: plain\ntitle: Plain\ntext: [text]\nlabels: ['0', '1']\n"
            f"splits: {{train: {{folder: {{file: {self.train}}}}}}}\n",
            encoding="utf-8",
        )
        plan = Plan(
            recipe=load_recipe("vanilla"),
            task=load_task(task),
            model=str(self.encoder),
            max_length=48,
            arguments=TRAINING | {"max_steps": steps},
        )
        finish_run(plan, self.folder / name)
        return str(self.folder / name / "model")

    def harden(self, model: str, output: str = "hardened", **changes: Any) -> Hardening:
        settings: dict[str, Any] = {
            "train_file": self.train,
            "test_file": self.test,
            "threats": "pwws",
            "lexicon": str(self.lexicon),
            "budget": 120,
            "max_clean_loss": 2.0,
            "output": self.folder / output,
            "candidates": ["vanilla", self.best],
            "wrapped": [],
            "training": TRAINING,
            "max_length": 48,
            "precision": "float32",  # the same figures on every machine
            "console": Console(quiet=True),
            "watch": Counted(),
        }
        return harden(model, **settings | changes)
