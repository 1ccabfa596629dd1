"""A random classifier, and something for every defence to learn from."""

import pytest
from transformers import BertForSequenceClassification, PreTrainedTokenizerFast

from tiny_text import tiny_classifier, tiny_tokenizer


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    return tiny_tokenizer()


@pytest.fixture
def model() -> BertForSequenceClassification:
    return tiny_classifier().eval()
