"""Class scores of a model for a dataset, each distinct text computed once."""

from collections.abc import Sequence

import numpy as np
from datasets import Dataset
from numpy.typing import NDArray
from tqdm import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rosewood.scoring import Scorer, evaluating


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
    scorer = Scorer(model, tokenizer, max_length, batch_size)
    texts = list(zip(*(dataset[field][:] for field in task_fields), strict=True))
    distinct = {text: row for row, text in enumerate(dict.fromkeys(texts))}
    logits = np.empty((len(distinct), scorer.classes), dtype=np.float32)
    # The bar appears on a terminal only, and only for work of more than 2 s.
    bar = tqdm(total=len(distinct), desc="predict", unit="text", delay=2, disable=None if progress else True)
    with bar, evaluating(model):
        for batch in scorer.batches(list(distinct)):
            logits[batch.rows] = batch.logits
            bar.update(len(batch.rows))
    return logits[[distinct[text] for text in texts]]
