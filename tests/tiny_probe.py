"""A probe of seconds: a tiny checkpoint, and a folder of MSGS with a few sentences of our own grammar."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rosewood.data.control_raising import Sentence, sentences
from rosewood.data.tasks import load_task

FOLDER = "control_raising_lexical_content_the"
TRAINING = {
    "learning_rate": 1e-3,
    "max_steps": 6,
    "per_device_train_batch_size": 4,
    "save_strategy": "steps",
    "save_steps": 2,
}
FILES = {"train": ("train", 40), "test": ("disambiguating", 24), "inoculating": ("disambiguating-in-domain", 16)}


def write_msgs(folder: Path) -> Path:
    """The files that MSGS has; the set that it lacks, ambiguous sentences with other words, is missing here too."""
    (folder / FOLDER).mkdir(parents=True)
    for file, (part, rows) in FILES.items():
        write_rows(folder, file, sentences("the", part)[:rows])
    return folder


def write_rows(folder: Path, file: str, rows: list[Sentence]) -> None:
    lines = [json.dumps(as_msgs(row)) for row in rows]
    (folder / FOLDER / f"{file}.jsonl").write_text("\n".join(lines) + "\n")


def as_msgs(row: Sentence) -> dict[str, Any]:
    return {
        "sentence": row.sentence,
        "linguistic_feature_label": load_task("msgs-the").labels.index(row.label),
        "surface_feature_label": row.surface_feature_label,
        "condition": "training",
        "paradigmID": row.paradigm,
    }
