"""What each run says of a sentence that a person typed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rosewood.data.tasks import Task
from rosewood.errors import DataError
from rosewood.playground.served import ServedRun


class Answer(NamedTuple):
    """The class probabilities of a run, and how much of each text that is cut off it has read."""

    run: str
    probabilities: list[float]
    cut: dict[str, int]
    """Field -> characters read, of those fields that are longer."""
    max_length: int

    @property
    def prediction(self) -> int:
        return max(range(len(self.probabilities)), key=self.probabilities.__getitem__)


def typed(task: Task, texts: Sequence[str | None]) -> dict[str, str]:
    """Field -> text, cleaned like the texts that the runs were trained on; an empty one is refused."""
    found = {field: _clean(text or "", task) for field, text in zip(task.text, texts, strict=True)}
    empty = [field for field, text in found.items() if not text]
    if empty:
        raise DataError(f"There is nothing to read yet: type the {' and the '.join(empty)} first.")
    return found


def _clean(text: str, task: Task) -> str:
    text = text.encode("utf-8", "replace").decode()  # half a surrogate pair is no text to a tokenizer
    for old, new in task.replace.items():
        text = text.replace(old, new)
    return text.strip()


def ask(runs: Sequence[ServedRun], texts: Mapping[str, str]) -> list[Answer]:
    """Every run's answer to the same texts."""
    row = tuple(texts.values())
    return [Answer(run.name, run.probabilities([row])[0].tolist(), _cut(run, texts), run.max_length) for run in runs]


def _cut(run: ServedRun, texts: Mapping[str, str]) -> dict[str, int]:
    return {field: read for field, read in run.read(texts).items() if read < len(texts[field])}
