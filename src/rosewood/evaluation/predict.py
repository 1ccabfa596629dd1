"""Class scores of a model for a dataset, each distinct text computed once."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import cast

import numpy as np
import torch
from datasets import Dataset
from numpy.typing import NDArray
from tqdm import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rosewood.errors import RunError


def predict(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    dataset: Dataset,
    task_fields: Sequence[str],
    max_length: int = 128,
    batch_size: int = 64,
    progress: bool = True,
) -> NDArray[np.float32]:
    """Logits (examples, classes) in the order of the dataset, computed on the model's device.

    Texts are batched by length, so that little is spent on padding, and repeated texts (or text
    pairs) run once. The training mode of every module is put back afterwards.
    """
    if max_length > tokenizer.model_max_length:
        raise RunError(f"max_length {max_length} is more than the model's {tokenizer.model_max_length} tokens.")
    texts = list(zip(*(dataset[field][:] for field in task_fields), strict=True))
    distinct = {text: row for row, text in enumerate(dict.fromkeys(texts))}
    classes = cast(int, model.config.num_labels)
    logits = np.empty((len(distinct), classes), dtype=np.float32)
    if distinct:
        _fill(logits, model, tokenizer, list(distinct), max_length, batch_size, progress)
    if not np.isfinite(logits).all():
        raise RunError("the model gives scores that are not finite numbers; its training has likely diverged.")
    return logits[[distinct[text] for text in texts]]


def _fill(
    logits: NDArray[np.float32],
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: list[tuple[str, ...]],
    max_length: int,
    batch_size: int,
    progress: bool,
) -> None:
    columns = [list(column) for column in zip(*texts, strict=True)]
    encoded = tokenizer(*columns, truncation=True, max_length=max_length)
    # Longest first: running out of memory shows at once, and the estimate of time left is not too short.
    order = sorted(range(len(texts)), key=lambda row: -len(encoded["input_ids"][row]))
    # The bar appears on a terminal only, and only for work of more than 2 s.
    bar = tqdm(total=len(texts), desc="predict", unit="text", delay=2, disable=None if progress else True)
    with bar, _evaluating(model), torch.inference_mode():
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            batch = tokenizer.pad(
                {key: [values[row] for row in rows] for key, values in encoded.items()}, return_tensors="pt"
            )
            logits[rows] = model(**batch.to(model.device)).logits.float().cpu().numpy()
            bar.update(len(rows))


@contextmanager
def _evaluating(model: torch.nn.Module) -> Iterator[None]:
    # Module by module: a linear probe keeps its encoder in eval mode while the head trains.
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
