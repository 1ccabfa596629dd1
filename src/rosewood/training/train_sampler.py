"""In which order a run sees its training data, where the Trainer's own order will not do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch.utils.data import Sampler
from transformers import TrainingArguments

from rosewood.protocol import Anchor
from rosewood.training.class_batches import ClassSampler, class_labels
from rosewood.training.length_groups import LengthGroupedSampler


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
