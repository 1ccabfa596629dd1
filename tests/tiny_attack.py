"""Made-up words, a lexicon of them, and sentences to attack."""

from random import Random

import torch
from transformers import BertForSequenceClassification, PreTrainedTokenizerFast

RNG = Random(0)
WORDS = ["".join(RNG.choices("abcdefghij", k=RNG.randint(2, 4))) for _ in range(60)]
ENTRIES = {word: RNG.sample(sorted(set(WORDS) - {word}), k=RNG.randint(1, 4)) for word in WORDS[::2]}


def sentences(count: int, seed: int = 1) -> list[str]:
    rng = Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(3, 9))) for _ in range(count)]


def predicted(model: BertForSequenceClassification, tokenizer: PreTrainedTokenizerFast, *texts: list[str]) -> list[int]:
    model.eval()
    with torch.no_grad():
        return [int(model(**tokenizer(*row, return_tensors="pt")).logits.argmax()) for row in zip(*texts, strict=True)]
