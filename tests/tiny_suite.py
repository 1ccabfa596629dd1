"""A suite of a few small files: every role, a missing set of each kind, and noise."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

from rosewood.data.suites import Suite

LABELS = ["negative", "positive"]
NLI = ["entailment", "neutral", "contradiction"]


def sentences(rows: int, seed: int, letters: str = "abcdef") -> list[str]:
    rng = Random(seed)
    return [" ".join("".join(rng.choices(letters, k=5)) for _ in range(rng.randint(2, 9))) for _ in range(rows)]


def write(path: Path, rows: int, seed: int, labels: list[str] | None = LABELS, **more: Any) -> None:
    """One JSON object a line: a text, a label unless there are none, and more columns of one value each row."""
    rng = Random(seed)
    lines = []
    for text in sentences(rows, seed, "abcdef" if labels else "uvwxyz"):
        row: dict[str, Any] = {"text": text, **{name: rng.choice(values) for name, values in more.items()}}
        if labels:
            row["label"] = rng.choice(labels)
        lines.append(json.dumps(row))
    path.write_text("\n".join(lines) + "\n")


def write_files(folder: Path) -> Path:
    write(folder / "training.jsonl", 60, seed=0)
    write(folder / "held_out.jsonl", 50, seed=1)
    write(folder / "books.jsonl", 40, seed=2)
    write(folder / "tricks.jsonl", 40, seed=3, method=["swap", "drop"])
    write(folder / "poems.jsonl", 30, seed=4)
    write(folder / "recipes.jsonl", 30, seed=5, labels=None)
    return folder


def tiny_suite(**changes: Any) -> Suite:
    def file(role: str, name: str, **more: Any) -> dict[str, Any]:
        return {"role": role, "title": name, "folder": {"file": f"{name}.jsonl"}, **more}

    raw = {
        "name": "tiny",
        "title": "Tiny",
        "text": ["text"],
        "labels": LABELS,
        "max_length": 40,
        "inside": ["held_out"],
        "noise": {"of": "held_out", "kinds": ["typos", "case"], "strengths": [0.2, 0.8]},
        "sets": {
            "training": file("reference", "training"),
            "held_out": file("clean", "held_out"),
            "books": file("shift", "books"),
            "lost": file("shift", "lost"),
            "poems": file("shift", "poems", counted=False),
            "tricks": file("adversarial", "tricks", groups=["method"]),
            "archived": {"role": "adversarial", "title": "Archived", "absent": "it is in an archive"},
            "recipes": file("anomaly", "recipes"),
        },
        **changes,
    }
    return Suite.model_validate(raw)
