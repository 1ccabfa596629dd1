from collections.abc import Callable

import pytest
from transformers import BertForSequenceClassification, PreTrainedTokenizerFast

from tiny_text import tiny_classifier, tiny_tokenizer


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    return tiny_tokenizer()


@pytest.fixture
def make_model() -> Callable[..., BertForSequenceClassification]:
    return tiny_classifier
