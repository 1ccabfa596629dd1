"""Two tiny runs of one task that disagree now and then, and what a playground needs to attack them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import torch
import yaml
from transformers import BertForSequenceClassification

from rosewood.data.tasks import Task, build_task
from rosewood.lab.playground.app import Playground
from rosewood.lab.playground.served_runs import AttackChoices, ServedRun, attack_each
from tiny_attack import ENTRIES, sentences
from tiny_runs import run_info
from tiny_text import tiny_classifier, tiny_tokenizer

LABELS = ("negative", "positive")
EVIL = "<script>alert('evil')</script> <b>good</b> film"


def tiny_task(fields: Sequence[str] = ("text",), labels: Sequence[str] = LABELS, name: str = "made-up") -> Task:
    splits = {part: {"folder": {"file": f"{part}.csv"}} for part in ("train", "validation", "test")}
    raw = {"name": name, "title": "Words <i>made</i> up", "text": [*fields], "labels": [*labels], "splits": splits}
    return build_task(raw, "a made-up task")


def tiny_model(number: int, labels: Sequence[str] = LABELS) -> BertForSequenceClassification:
    """Number 0 is the tiny classifier; the others are more or less like it."""
    model = tiny_classifier(tuple(labels))
    if number:
        torch.manual_seed(number)
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(0.3 * torch.randn_like(weight))
    return model


def tiny_served(task: Task, max_length: int = 64) -> list[ServedRun]:
    return [
        ServedRun.of(name, tiny_model(number, task.labels), tiny_tokenizer(), task, max_length)
        for number, name in enumerate(("plain", "robust"))
    ]


def write_lexicon(folder: Path) -> Path:
    (folder / "words.json").write_text(json.dumps(ENTRIES))
    return folder / "words.json"


def write_run(folder: Path, number: int, task: Task, **changes: object) -> Path:
    """A run directory as training leaves it."""
    tiny_model(number, task.labels).save_pretrained(folder / "model")
    tiny_tokenizer().save_pretrained(folder / "model")
    (folder / "task.yaml").write_text(yaml.safe_dump(task.model_dump(mode="json", by_alias=True, exclude_none=True)))
    run_info(task=task.name, max_length=64, **changes).save(folder / "run.json")
    return folder


def write_data(folder: Path) -> Path:
    """The test split of the made-up task."""
    rows = [f"{text},{LABELS[number % 2]}" for number, text in enumerate(sentences(10))]
    (folder / "test.csv").write_text("\n".join(["text,label", f"{EVIL},positive", *rows]) + "\n")
    return folder


def telling_sentence(playground: Playground) -> str:
    """A sentence on which the attack finds words that break one run and not the other."""
    attack, resources = playground.choices.take("pwws", playground.choices.lexicon)
    for text in sentences(40):
        rounds = attack_each(playground.runs, {"text": text}, "text", attack, resources)
        if any(each.tells_apart for each in rounds):
            return text
    raise AssertionError("the two models never differ")


def tiny_playground(folder: Path, samples: Sequence[list[str]] = (), fields: Sequence[str] = ("text",)) -> Playground:
    task = tiny_task(fields)
    return Playground(task, tiny_served(task), AttackChoices(task, None, str(write_lexicon(folder))), samples)
