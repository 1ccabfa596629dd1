"""The order of the training data (by class, by length, or plain), and how much the rows of each class count.

The order depends on seed and epoch alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Sampler
from transformers import TrainingArguments

from rosewood.config.settings import BALANCED, ClassWeights
from rosewood.errors import RunError
from rosewood.protocol import Anchor

LABEL_COLUMNS = ("labels", "label", "label_ids")  # what the Trainer's collators take for labels


class ClassSampler(Sampler[int]):
    """Shuffles, then spreads the classes evenly (`stratified`) or keeps them apart (`one_class`).

    Stratified, every stretch of the order has the classes in the proportions of the data, up to rounding, and exactly
    where they are equally frequent; so it does not matter how batches are cut or dealt out to processes. Kept apart,
    every batch has one class, until at the end the examples that fill no batch come mixed. Either way each example
    comes once per epoch. With `lengths`, batches hold texts of similar length, and proportions hold within a batch.
    """

    def __init__(
        self,
        labels: Sequence[int] | Tensor,
        order: Literal["stratified", "one_class"],
        batch_size: int,
        seed: int,
        lengths: Sequence[int] | None = None,
    ) -> None:
        self._labels = torch.as_tensor(labels)
        self._order, self._batch_size, self._seed = order, batch_size, seed
        self._lengths = None if lengths is None else torch.as_tensor(list(lengths))
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch

    def __len__(self) -> int:
        return len(self._labels)

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self._seed * 1_000_003 + self._epoch)
        shuffled = torch.randperm(len(self), generator=generator)
        arrange = self._mixed if self._order == "stratified" else self._apart
        return iter(arrange(shuffled, generator).tolist())

    def _mixed(self, shuffled: Tensor, generator: torch.Generator) -> Tensor:
        spread = self._spread(shuffled)
        if self._lengths is None:
            return spread
        chunks = [self._spread(self._by_length(chunk)) for chunk in spread.split(self._batch_size * BATCHES_PER_CHUNK)]
        return shuffled_batches(torch.cat(chunks), self._lengths, self._batch_size, generator)

    def _by_length(self, chunk: Tensor) -> Tensor:
        return chunk if self._lengths is None else longest_first(chunk, self._lengths)

    def _spread(self, shuffled: Tensor) -> Tensor:
        """Example k of the n of its class is at (k + 1/2) / n of the way."""
        places = torch.empty(len(shuffled), dtype=torch.float64)
        for group in self._groups(shuffled):
            places[group] = (torch.arange(len(group), dtype=torch.float64) + 0.5) / len(group)
        return shuffled[places.argsort(stable=True)]

    def _apart(self, shuffled: Tensor, generator: torch.Generator) -> Tensor:
        batches = [
            batch
            for group in self._groups(shuffled)
            for chunk in shuffled[group].split(self._batch_size * BATCHES_PER_CHUNK)
            for batch in self._by_length(chunk).split(self._batch_size)
        ]
        full = [batch for batch in batches if len(batch) == self._batch_size]
        order = torch.randperm(len(full), generator=generator).tolist()
        rest = torch.cat([shuffled[:0], *(batch for batch in batches if len(batch) < self._batch_size)])
        rest = rest[torch.randperm(len(rest), generator=generator)]
        return torch.cat([*(full[i] for i in order), rest])

    def _groups(self, shuffled: Tensor) -> list[Tensor]:
        """The places of the examples of each class."""
        labels = self._labels[shuffled]
        return [(labels == label).nonzero().flatten() for label in labels.unique()]


def class_labels(dataset: Any, user: str) -> Tensor:
    """The class of every example; `user` is who needs to know."""
    labels = _column(dataset)
    try:
        found = torch.as_tensor([int(label) if float(label) == int(label) else -1 for label in labels or ()])
    except (TypeError, ValueError):
        found = torch.tensor([-1])
    if not len(found) or int(found.min()) < 0:
        raise RunError(
            f"{user} wants to know the class of every training example before training starts, and the data have no "
            f"column {' or '.join(LABEL_COLUMNS)} with one whole number from 0 on for each: add it, or set "
            "batches=mixed"
        )
    return found


def _column(dataset: Any) -> list[Any] | None:
    names = getattr(dataset, "column_names", None)
    if names is not None:
        column = next((name for name in LABEL_COLUMNS if name in names), None)
        return None if column is None or not hasattr(dataset, "__len__") else list(dataset[column])
    if not hasattr(dataset, "__len__"):
        return None
    rows = [dataset[i] for i in range(len(dataset))]
    column = next((name for name in LABEL_COLUMNS if rows and isinstance(rows[0], dict) and name in rows[0]), None)
    return None if column is None else [row[column] for row in rows]


BATCHES_PER_CHUNK = 50


class LengthGroupedSampler(Sampler[int]):
    """Shuffles, then sorts by length within chunks of many batches, so that batches need little padding.

    The order is a function of `(seed, epoch)`: a run resumed in the middle of an epoch sees the same batches.
    The batch with the longest text comes first, so that running out of memory happens at once.
    """

    def __init__(self, lengths: Sequence[int], batch_size: int, seed: int) -> None:
        self._lengths = torch.as_tensor(list(lengths))
        self._batch_size = batch_size
        self._seed = seed
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch

    def __len__(self) -> int:
        return len(self._lengths)

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self._seed * 1_000_003 + self._epoch)
        shuffled = torch.randperm(len(self), generator=generator)
        chunks = [longest_first(chunk, self._lengths) for chunk in shuffled.split(self._batch_size * BATCHES_PER_CHUNK)]
        return iter(shuffled_batches(torch.cat(chunks), self._lengths, self._batch_size, generator).tolist())


def longest_first(order: Tensor, lengths: Tensor) -> Tensor:
    """The same examples by falling length; those of one length keep their order."""
    return order[lengths[order].argsort(descending=True, stable=True)]


def shuffled_batches(order: Tensor, lengths: Tensor, batch_size: int, generator: torch.Generator) -> Tensor:
    """Batches in another order, so that length does not follow the schedule; a short last one stays last."""
    batches = list(order.split(batch_size))
    short = [batches.pop()] if len(batches[-1]) < batch_size else []
    places = torch.randperm(len(batches), generator=generator).tolist()
    if batches:
        longest = max(range(len(batches)), key=lambda i: int(lengths[batches[i]].max()))
        places.sort(key=lambda i: i != longest)
    return torch.cat([batches[i] for i in places] + short)


def train_sampler(dataset: Any, args: TrainingArguments, anchors: Iterable[Anchor]) -> Sampler[int] | None:
    """Classes as an anchor wants them, texts of similar length together if asked for; None: as the Trainer does it.

    The Trainer's own groups by length are drawn from the global generator, so that a resumed epoch would see another
    order; these depend on seed and epoch alone.
    """
    seed = args.seed if args.data_seed is None else args.data_seed
    step = args.train_batch_size * args.gradient_accumulation_steps * args.world_size
    grouped = args.train_sampling_strategy == "group_by_length"
    lengths = dataset["length"] if grouped and "length" in getattr(dataset, "column_names", ()) else None
    for anchor in anchors:
        order = anchor.batch_order()
        if order is not None:
            labels = class_labels(dataset, f"anchor {anchor.name}")
            batch = step if order == "stratified" else args.train_batch_size
            return ClassSampler(labels, order, batch, seed, lengths)
    return None if lengths is None else LengthGroupedSampler(lengths, step, seed)


def resolved_weights(chosen: ClassWeights, labels: Sequence[str], rows: Sequence[int]) -> list[float]:
    """The weight of each label, in order, scaled so that the mean over the training rows is 1.

    So the loss keeps its size beside the other terms of a recipe. Balanced weights give all classes that occur the same
    say: rows / (classes x rows of the class), as scikit-learn has it.
    """
    counts = np.bincount(np.asarray(rows), minlength=len(labels)).astype(np.float64)
    if chosen == BALANCED:
        weights = np.where(counts > 0, 1 / np.maximum(counts, 1), 1 / len(rows))
    else:
        assert not isinstance(chosen, str)
        if set(chosen) != set(labels):
            raise RunError(
                f"class weights name {', '.join(chosen)}; the labels are {', '.join(labels)}: give one number for each"
            )
        weights = np.array([chosen[label] for label in labels])
    scaled: list[float] = (weights * counts.sum() / (weights * counts).sum()).tolist()
    return scaled


class WeightedLoss:
    """The cross-entropy of each row times the weight of its class, a mean over the rows of a batch.

    It is divided by the number of rows and not by the sum of their weights: then a batch may be cut into micro-batches,
    or shared by processes, and the mean stays the same.
    """

    def __init__(self, weights: Sequence[float]) -> None:
        if not all(0 < weight < float("inf") for weight in weights):
            raise RunError(f"class weights are numbers above 0, got {', '.join(map(str, weights))}")
        self.weights = torch.tensor(weights, dtype=torch.float64)

    def __call__(self, model: nn.Module, inputs: Mapping[str, Any]) -> tuple[Tensor, Any]:
        """The weighted loss, and what the model puts out."""
        labels = inputs.get("labels")
        if labels is None or labels.dim() != 1 or labels.is_floating_point():
            raise RunError("class weights need one label per text: leave them out")
        outputs = model(**inputs)
        logits: Tensor = outputs["logits"] if isinstance(outputs, dict) else outputs[1]
        if logits.shape[-1] != len(self.weights):
            raise RunError(f"there are {len(self.weights)} class weights, and the model has {logits.shape[-1]} outputs")
        losses = functional.cross_entropy(logits, labels, reduction="none")
        return (losses * self.weights.to(losses)[labels]).mean(), outputs
