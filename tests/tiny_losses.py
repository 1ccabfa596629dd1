"""Small runs on disk, and a bowl whose loss is known in closed form."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import ClassLabel, Dataset, Features, Value
from torch import Tensor, nn

from rosewood.lab.losses import FixedLoss, LossPoint
from tiny_runs import run_info
from tiny_text import save_tiny_checkpoint, tiny_classifier, tiny_tokenizer

LABELS = ("bad", "good")
MakeRun = Callable[..., Path]


def films(count: int = 10) -> Dataset:
    """Texts of different lengths."""
    texts = [" ".join(["good" if row % 3 else "bad", *["film"] * (row % 5), "abc"[row % 3]]) for row in range(count)]
    features = Features({"text": Value("string"), "label": ClassLabel(names=list(LABELS))})
    return Dataset.from_dict({"text": texts, "label": [row % 2 for row in range(count)]}, features=features)


def fixed_loss(seed: int = 0, labels: tuple[str, ...] = LABELS, **settings: Any) -> FixedLoss:
    """A tiny classifier with weights of its own, on a few films."""
    return FixedLoss(
        scattered(tiny_classifier(labels), seed), tiny_tokenizer(), films(), **({"batch_size": 4} | settings)
    )


def scattered(model: Any, seed: int) -> Any:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return model


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """A finished run on a task of its own files."""

    def make(name: str, seed: int = 0, labels: tuple[str, ...] = LABELS, **changes: Any) -> Path:
        folder = tmp_path / name
        scattered(tiny_classifier(labels), seed).save_pretrained(folder / "model")
        tiny_tokenizer().save_pretrained(folder / "model")
        rows = films(40)
        table = tmp_path / "films.csv"
        lines = [f"{text},{LABELS[label]}" for text, label in zip(rows["text"][:], rows["label"][:], strict=True)]
        table.write_text("\n".join(["text,label", *lines]) + "\n")
        task = {"name": "films", "title": "Films", "text": ["text"], "labels": list(LABELS)}
        splits = {split: {"folder": {"file": str(table)}} for split in ("train", "test")}
        (folder / "task.yaml").write_text(json.dumps(task | {"splits": splits}))  # JSON is YAML
        pretrained = tmp_path / "pretrained"
        if not pretrained.exists():
            save_tiny_checkpoint(pretrained)
        run_info(**({"seed": seed, "model": str(pretrained), "task": "films"} | changes)).save(folder / "run.json")
        return folder

    return make


class Bowl:
    """The loss ½ Σ c (w - w0)² + 0.3, in float64, as `FixedLoss` would give it; its Hessian is diag(c)."""

    examples, data, fingerprint = 1, "bowl", "bowl"

    def __init__(self, curvatures: Tensor, centre: Tensor) -> None:
        self.model = nn.Linear(1, 1, bias=False)
        self.model.weight = nn.Parameter(centre.double().clone())
        self._curvatures, self._centre = curvatures.double(), centre.double()

    def measure(self) -> LossPoint:
        with torch.inference_mode():
            return LossPoint(float(self._loss()), 1.0)

    def shares(self) -> Iterator[Tensor]:
        """In two parts, as batches are."""
        yield 0.25 * self._loss()
        yield 0.75 * self._loss()

    def _loss(self) -> Tensor:
        return 0.5 * (self._curvatures * (self.model.weight - self._centre) ** 2).sum() + 0.3
