"""Searches in bfloat16: what they find is confirmed in float32."""

from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import BertForSequenceClassification, PreTrainedTokenizerFast

from rosewood.attacks import Genetic, Gradient, Pwws, Typos
from rosewood.attacks.runner.attack import Attack
from rosewood.models.modes import evaluating, has_bfloat16
from rosewood.models.scoring import Scorer
from tiny_attack import predicted, sentences

METHODS = [Pwws(), Typos(), Genetic(population=6, generations=3, min_log_ratio=None)]


@pytest.fixture
def hundred(model: BertForSequenceClassification, tokenizer: PreTrainedTokenizerFast) -> Dataset:
    """Sentences that the model is sure of, as trained models are: their margins are no small part of the logits."""
    texts = [(text,) for text in sentences(300, seed=4)]
    with evaluating(model):
        scores = {
            batch.rows[i]: logits
            for batch in Scorer(model, tokenizer).batches(texts)
            for i, logits in enumerate(batch.logits)
        }
    sure = sorted(scores, key=lambda row: -abs(scores[row][0] - scores[row][1]))[:100]
    return Dataset.from_dict({"text": [texts[i][0] for i in sure], "label": [int(scores[i].argmax()) for i in sure]})


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_every_success_is_one_in_float32_and_as_many_are_found(
    method: Attack, model: BertForSequenceClassification, tokenizer: PreTrainedTokenizerFast, hundred: Dataset, run: Any
) -> None:
    exact, quick = (run(model, hundred, method, precision=each) for each in ("float32", "bfloat16"))
    found = [each for each in quick.examples if each.status == "broken"]
    answers = predicted(model, tokenizer, [each.adversarial for each in found])
    assert all(answer != each.label for answer, each in zip(answers, found, strict=True))
    assert quick.summary.clean_accuracy == 1.0
    assert abs(len(found) - exact.summary.counts["broken"]) <= 1
    # Probabilities are those of float32 too.
    with evaluating(model), torch.no_grad():
        logits = model(**tokenizer(found[0].adversarial, return_tensors="pt")).logits[0]
    assert found[0].adversarial_probabilities == pytest.approx(logits.softmax(-1).tolist(), abs=1e-5)
    assert quick.fingerprint != exact.fingerprint and quick.precision == "bfloat16"


def test_a_search_that_estimates_effects_computes_in_float32(
    model: BertForSequenceClassification, hundred: Dataset, run: Any
) -> None:
    exact, asked = (run(model, hundred, Gradient(), precision=each) for each in ("float32", "bfloat16"))
    assert asked.precision == "float32" and asked.fingerprint == exact.fingerprint
    assert [each.adversarial for each in asked.examples] == [each.adversarial for each in exact.examples]


def test_the_search_computes_in_bfloat16(
    model: BertForSequenceClassification, tokenizer: PreTrainedTokenizerFast
) -> None:
    texts = [(text,) for text in sentences(8)]
    with evaluating(model):
        (exact,), (quick,) = (
            list(Scorer(model, tokenizer, precision=p).batches(texts)) for p in ("float32", "bfloat16")
        )
    difference = np.abs(np.stack(list(exact.logits)) - np.stack(list(quick.logits)))
    assert 0 < difference.max() < 0.1


def test_batch_size_changes_nothing(model: BertForSequenceClassification, single: Dataset, run: Any) -> None:
    one, other = (run(model, single, Pwws(), precision="bfloat16", batch_size=size) for size in (64, 5))
    same = [a.adversarial == b.adversarial for a, b in zip(one.examples, other.examples, strict=True)]
    assert all(same)


def test_auto_is_what_the_hardware_has(model: BertForSequenceClassification, single: Dataset, run: Any) -> None:
    result = run(model, single.select(range(4)), Pwws(), precision="auto")
    assert result.precision == ("bfloat16" if has_bfloat16(torch.device("cpu")) else "float32")
