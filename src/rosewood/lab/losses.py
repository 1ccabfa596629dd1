"""The loss of models on fixed examples, with finished rows kept on disk; the runs that analyses read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from datasets import Dataset
from pydantic import Field
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils.logging import disable_progress_bar

from rosewood.data.loading import fingerprint, load_split
from rosewood.data.tasks import Task, load_task
from rosewood.errors import RunError
from rosewood.models.averaging import Weights
from rosewood.models.modes import accelerated
from rosewood.models.names import model_fingerprint
from rosewood.models.open import load_pretrained, open_run, run_info
from rosewood.models.scoring import label_columns, longest_text
from rosewood.results import Count, ResultFile, RunInfo, installed_versions
from rosewood.results.files import fingerprint_of


class MeasuredFile(ResultFile):
    """What was measured on, and with what."""

    source: str  # of the examples, in words
    data: str  # fingerprint of the examples
    examples: Count
    fingerprint: str  # of the models, the examples and all settings
    versions: dict[str, str] = Field(default_factory=installed_versions)


class LossPoint(NamedTuple):
    """How a model does at one place in the space of weights."""

    loss: float
    accuracy: float


class FixedLoss:
    """Mean cross-entropy of a classifier on a data set, with batches that are ready and sorted by length."""

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        data: Dataset,
        max_length: int = 128,
        batch_size: int = 64,
    ) -> None:
        """Takes data as `load_split` gives them: the texts, then the integer `label`."""
        if max_length > longest_text(model, tokenizer):
            raise RunError(f"max_length {max_length} is more than the model's {longest_text(model, tokenizer)} tokens.")
        self.model = model
        self.examples = len(data)
        self.data = fingerprint(data)
        settings = [model_fingerprint(model, tokenizer), self.data, max_length, batch_size]
        self.fingerprint = fingerprint_of(settings)
        self._batches = list(_batches(model, tokenizer, data, max_length, batch_size))

    @torch.inference_mode()
    def measure(self) -> LossPoint:
        """Loss and accuracy with the weights that the model has now."""
        loss = torch.zeros((), dtype=torch.float64, device=self.model.device)
        right = torch.zeros((), dtype=torch.long, device=self.model.device)
        for inputs, labels in self._batches:
            logits = self.model(**inputs).logits
            loss += functional.cross_entropy(logits.double(), labels, reduction="sum")
            right += (logits.argmax(dim=-1) == labels).sum()
        return LossPoint(float(loss) / self.examples, int(right) / self.examples)

    def shares(self) -> Iterator[Tensor]:
        """What each batch adds to the loss, one by one, to be differentiated."""
        for inputs, labels in self._batches:
            logits = self.model(**inputs).logits
            yield functional.cross_entropy(logits, labels, reduction="sum") / self.examples


def _batches(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, data: Dataset, max_length: int, batch_size: int
) -> Iterator[tuple[dict[str, Tensor], Tensor]]:
    fields = data.column_names[: data.column_names.index("label")]
    outputs = label_columns(model.config, data.features["label"].names)
    encoded = tokenizer(*(data[field][:] for field in fields), truncation=True, max_length=max_length)
    labels = [outputs[label] for label in data["label"][:]]
    # Longest first, as evaluation does it: the same batches give the same logits to the last bit.
    order = sorted(range(len(labels)), key=lambda row: -len(encoded["input_ids"][row]))
    for start in range(0, len(order), batch_size):
        rows = order[start : start + batch_size]
        batch = {key: [values[row] for row in rows] for key, values in encoded.items()}
        padded = tokenizer.pad(batch, return_tensors="pt").to(model.device)
        yield dict(padded), torch.tensor([labels[row] for row in rows], device=model.device)


class RunLosses:
    """Runs that may be compared weight by weight, and the examples to compare them on; checked before any is loaded."""

    def __init__(
        self,
        runs: Sequence[Path],
        data_dir: str | Path | None = None,
        split: str | None = None,
        size: int | None = 256,
        batch_size: int = 64,
        seed: int = 0,
    ) -> None:
        """Task, data folder and text length are the first run's; without a split, its test or else validation data."""
        self.folders = dict(zip(run_names(runs), runs, strict=True))
        self._infos = {name: finished_run(folder) for name, folder in self.folders.items()}
        check_alike({str(folder): kind_on_disk(folder / "model") for folder in runs})
        self._first = next(iter(self._infos.values()))
        self._task = load_task(runs[0] / "task.yaml")
        split = split or ("test" if "test" in self._task.splits else "validation")
        self._data: Dataset = load_split(self._task, split, data_dir or self._first.data_dir, size, seed)
        self._batch_size = batch_size
        self.source = f"{self._task.name}, {split}, {len(self._data)} examples"

    def of(self, name: str) -> FixedLoss:
        """That of a run; a LoRA run has its adapter merged into its model."""
        run = open_run(self.folders[name])
        return self._loss(run.model, run.tokenizer)

    def at_the_start(self) -> FixedLoss:
        """That of the model from which the first run was trained.

        ROSE's Figure 1 shows a panel "pre-trained initial" and does not say which head it has. This is the initial
        model to the letter: the pre-trained encoder with the untrained head that the run's own seed gives.
        """
        return self._loss(*_start(self._first, self._task))

    def _loss(self, model: Any, tokenizer: PreTrainedTokenizerBase) -> FixedLoss:
        return FixedLoss(accelerated(model.float()), tokenizer, self._data, self._first.max_length, self._batch_size)


def _start(info: RunInfo, task: Task) -> tuple[Any, PreTrainedTokenizerBase]:
    disable_progress_bar()
    return load_pretrained(info.model, task, info.seed, new_head=info.new_head)


class Architecture(NamedTuple):
    """What two models must share, so that one's weights mean something in the other."""

    architecture: str
    labels: list[str]
    shapes: dict[str, tuple[int, ...]]


def kind_of(model: PreTrainedModel) -> Architecture:
    """That of a model in memory."""
    labels = cast(dict[int, str], model.config.id2label)
    shapes = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    return Architecture(type(model).__name__, list(labels.values()), shapes)


def kind_on_disk(folder: Path) -> Architecture:
    """That of a saved model, without reading its weights."""
    weights = Weights(folder)
    architectures, labels = weights.config.get("architectures") or ["unknown"], weights.config.get("id2label") or {}
    return Architecture(architectures[0], list(labels.values()), weights.shapes())


def check_alike(kinds: Mapping[str, Architecture]) -> None:
    """Refuse models whose weights do not mean the same."""
    (first, ours), *others = kinds.items()
    for name, theirs in others:
        problems = []
        if theirs.architecture != ours.architecture:
            problems.append(f"is another architecture ({theirs.architecture}, not {ours.architecture})")
        if theirs.labels != ours.labels:
            problems.append(f"has other labels ({', '.join(theirs.labels)}, not {', '.join(ours.labels)})")
        both = ours.shapes | theirs.shapes
        differing = [each for each in both if ours.shapes.get(each) != theirs.shapes.get(each)]
        if differing:
            here, there = ours.shapes.get(differing[0]), theirs.shapes.get(differing[0])
            problems.append(f"has weights of other shapes ({differing[0]}: {there}, not {here})")
        if problems:
            raise RunError(f"{name} cannot be compared with {first}: it {', and '.join(problems)}.")


def finished_run(folder: Path) -> RunInfo:
    """What a finished run says of itself; any other folder is refused."""
    info = run_info(folder)
    if info is None:
        what = "is not a run of Rosewood (no run.json)" if folder.exists() else "does not exist"
        raise RunError(f"{folder} {what}: expected the --output of a finished rosewood train")
    return info


PRETRAINED = "pre-trained"
"""What the model that runs started from is called, so that no run may be."""


def run_names(runs: Sequence[Path]) -> list[str]:
    """Their folders' names, or, where two are the same or one is taken, the whole paths."""
    if len({folder.resolve() for folder in runs}) < len(runs):
        raise RunError("expected different runs, got one twice: name each once.")
    short = [folder.resolve().name for folder in runs]
    if len({*short, PRETRAINED}) == len(runs) + 1:
        return short
    return ["-".join(folder.resolve().parts[1:]) for folder in runs]


def progress_bar(shown: bool) -> Progress:
    """How much is done and how long the rest takes; on a terminal it moves, elsewhere only its end is printed."""
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), MofNCompleteColumn())
    return Progress(*columns, TimeRemainingColumn(elapsed_when_finished=True), disable=not shown)
