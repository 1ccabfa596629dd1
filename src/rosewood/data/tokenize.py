"""Turns the texts of a task into token ids, without padding: the collator pads each batch."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import datasets
from transformers import PreTrainedTokenizerBase

from rosewood.data.tasks import Task
from rosewood.errors import DataError

_CUT_SHARE = 0.05
_CHECKED = 1000
_QUICK = 20_000


def tokenize(
    dataset: datasets.Dataset, task: Task, tokenizer: PreTrainedTokenizerBase, max_length: int = 128
) -> datasets.Dataset:
    """Encode single texts or pairs, cut to `max_length` tokens (the longer text of a pair first).

    The result has what the tokenizer gives the model, plus `labels` and `length`.
    """
    if max_length > tokenizer.model_max_length:
        raise DataError(f"max_length {max_length} is more than the model's {tokenizer.model_max_length} tokens")

    def encode(batch: dict[str, list]) -> dict[str, list]:
        texts = [batch[field] for field in task.text]
        encoded = dict(tokenizer(*texts, truncation=True, max_length=max_length))
        return {**encoded, "labels": batch["label"], "length": [len(ids) for ids in encoded["input_ids"]]}

    with quiet(len(dataset)):
        encoded = dataset.map(encode, batched=True, remove_columns=dataset.column_names, desc="tokenize")
    share = _cut_share(dataset, task, tokenizer, encoded, max_length)
    if share > _CUT_SHARE:
        warnings.warn(
            f"{share:.0%} of the texts are longer than max_length={max_length} tokens and were cut",
            stacklevel=2,
        )
    return encoded


@contextmanager
def quiet(rows: int) -> Iterator[None]:
    """No progress bar for what is done before anybody could read it."""
    if rows > _QUICK or datasets.are_progress_bars_disabled():
        yield
        return
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        datasets.enable_progress_bars()


def _cut_share(
    dataset: datasets.Dataset,
    task: Task,
    tokenizer: PreTrainedTokenizerBase,
    encoded: datasets.Dataset,
    max_length: int,
) -> float:
    """The share of texts that were cut, from a look at some of the rows that fill `max_length`."""
    full = [i for i, length in enumerate(encoded["length"][:]) if length == max_length]
    if not full:
        return 0.0
    rows = dataset.select(full[:: max(1, len(full) // _CHECKED)])
    whole = tokenizer(*(rows[field][:] for field in task.text), verbose=False)["input_ids"]
    cut = sum(len(ids) > max_length for ids in whole) / len(whole)
    return cut * len(full) / len(dataset)
