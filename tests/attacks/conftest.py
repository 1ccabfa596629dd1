"""A random classifier and examples of made-up words."""

from collections.abc import Callable
from typing import Any

import pytest
from datasets import Dataset
from transformers import BertForSequenceClassification, PreTrainedTokenizerFast

from rosewood.attacks.runner.api import attack
from rosewood.results import AttackResult
from rosewood.words.language_models import MaskedLM
from rosewood.words.lexicon import Lexicon
from tiny_attack import ENTRIES, WORDS, predicted, sentences
from tiny_text import tiny_classifier, tiny_masked_lm, tiny_tokenizer


@pytest.fixture(scope="session")
def lexicon() -> Lexicon:
    return Lexicon.of(ENTRIES)


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    return tiny_tokenizer()


@pytest.fixture
def model() -> BertForSequenceClassification:
    return tiny_classifier()


@pytest.fixture
def model3() -> BertForSequenceClassification:
    return tiny_classifier(("LABEL_0", "LABEL_1", "LABEL_2"))


@pytest.fixture
def single(model: BertForSequenceClassification, tokenizer: PreTrainedTokenizerFast) -> Dataset:
    """Thirty sentences that the model gets right, but for every tenth."""
    texts = sentences(30)
    right = predicted(model, tokenizer, texts)
    return Dataset.from_dict({"text": texts, "label": [1 - y if i % 10 == 0 else y for i, y in enumerate(right)]})


@pytest.fixture
def pairs(model3: BertForSequenceClassification, tokenizer: PreTrainedTokenizerFast) -> Dataset:
    """Thirty pairs that the model of three classes gets right."""
    one, two = sentences(30, seed=2), sentences(30, seed=3)
    return Dataset.from_dict({"premise": one, "hypothesis": two, "label": predicted(model3, tokenizer, one, two)})


@pytest.fixture(scope="session")
def masked_lm() -> MaskedLM:
    """Knows half of the words, and spells the others."""
    return tiny_masked_lm(WORDS[:30])


@pytest.fixture
def run(tokenizer: PreTrainedTokenizerFast, lexicon: Lexicon, masked_lm: MaskedLM) -> Callable[..., AttackResult]:
    def call(model: BertForSequenceClassification, data: Dataset, method: Any, **settings: Any) -> AttackResult:
        given = {"lexicon": lexicon, "masked_lm": masked_lm, "progress": False}
        return attack(model, tokenizer, data, method, **(given | settings))

    return call
