"""Predictions are found again by whatever decides them, and by nothing else."""

import torch
from tokenizers import normalizers
from transformers import PreTrainedTokenizerFast

from rosewood.evaluation.predict import PredictionCache, checkpoint_fingerprint
from tiny_text import tiny_classifier, tiny_tokenizer

LABELS = ("negative", "positive")


def test_using_a_tokenizer_leaves_the_fingerprint_as_it_was() -> None:
    model, tokenizer = tiny_classifier(LABELS), tiny_tokenizer()
    before = checkpoint_fingerprint(model, tokenizer)
    tokenizer(["a film", "b"], truncation=True, max_length=3, padding="max_length")
    assert checkpoint_fingerprint(model, tokenizer) == before
    model.eval()
    assert checkpoint_fingerprint(model, tokenizer) == before == checkpoint_fingerprint(model, tiny_tokenizer())


def test_whatever_decides_a_prediction_changes_the_fingerprint() -> None:
    model = tiny_classifier(LABELS)

    def changed(**settings: object) -> PreTrainedTokenizerFast:
        tokenizer = tiny_tokenizer()
        for name, value in settings.items():
            setattr(tokenizer, name, value)
        return tokenizer

    cased, more = tiny_tokenizer(), tiny_tokenizer()
    cased.backend_tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)
    more.add_tokens(["films"])
    tokenizers = [
        tiny_tokenizer(),
        cased,
        more,
        changed(truncation_side="left"),
        changed(padding_side="left"),
        changed(model_input_names=["input_ids", "attention_mask"]),
    ]
    found = [checkpoint_fingerprint(model, tokenizer) for tokenizer in tokenizers]
    found.append(checkpoint_fingerprint(tiny_classifier(LABELS[::-1]), tiny_tokenizer()))
    with torch.no_grad():
        model.classifier.bias[0] += 1e-6
    found.append(checkpoint_fingerprint(model, tiny_tokenizer()))
    assert len(set(found)) == len(found)


def test_keys_tell_pairs_lengths_and_order_apart() -> None:
    questions = [(("a",), 8), (("a",), 9), (("a", "b"), 8), (("b", "a"), 8), (("a b",), 8), (("a", ""), 8), (("",), 8)]
    assert len({PredictionCache.key(*each) for each in questions}) == len(questions)
