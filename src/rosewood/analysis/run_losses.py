"""The loss of finished runs on the same examples."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import PreTrainedTokenizerBase
from transformers.utils.logging import disable_progress_bar

from rosewood.analysis.alike import check_alike, kind_on_disk
from rosewood.analysis.finished_run import finished_run
from rosewood.analysis.fixed_loss import FixedLoss
from rosewood.analysis.run_names import run_names
from rosewood.data.loading import load_split
from rosewood.data.tasks import Task, load_task
from rosewood.evaluation.classifier import load_classifier
from rosewood.model.accelerated import accelerated
from rosewood.results import RunInfo
from rosewood.training.pretrained import load_pretrained


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
        disable_progress_bar()
        return self._loss(*load_classifier(str(self.folders[name] / "model")))

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
