"""Every kind of every defence, around a random classifier, with made-up words to learn from."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rosewood.config.registry import component_names
from rosewood.defences.runner.wrap import choose_defence, kinds_of, wrap
from rosewood.models.defended import Defence, Defended
from rosewood.models.scoring import Row, Scorer
from rosewood.words.lexicon import Lexicon
from tiny_attack import ENTRIES, sentences

KINDS = [title for name in component_names("defence") for title in kinds_of(name)]


def wrapped(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, defence: str | Defence, **settings: object
) -> Defended:
    if isinstance(defence, str) and "copies" in choose_defence(defence).settings():
        settings = {"copies": 6} | settings  # enough for a test
    texts = sentences(40, seed=5)
    labels = [place % int(model.config.num_labels or 0) for place in range(len(texts))]
    return wrap(model, tokenizer, defence, texts=texts, labels=labels, lexicon=Lexicon.of(ENTRIES), **settings)


def logits(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, rows: list[Row], batch_size: int = 64
) -> NDArray[np.float64]:
    found = np.empty((len(rows), int(model.config.num_labels or 0)))
    for batch in Scorer(model, tokenizer, 64, batch_size).batches(rows):
        found[batch.rows] = batch.logits
    return found
