"""Texts become ids without padding; pairs are cut together, and a heavy cut is announced."""

import warnings
from typing import Any

import datasets
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from rosewood.data.examples import tokenize
from rosewood.data.tasks import Task, build_task
from rosewood.errors import DataError

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *(f"w{i}" for i in range(50))]


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerFast:
    core = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    core.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="[PAD]",
        unk_token="[UNK]",
        model_max_length=32,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )


def task(*fields: str) -> Task:
    splits: dict[str, Any] = {"train": {"folder": {"file": "a.csv"}}}
    raw = {"name": "a", "title": "A", "text": list(fields), "labels": ["0", "1"], "splits": splits}
    return build_task(raw, "a")


def test_single_texts(tokenizer: PreTrainedTokenizerFast) -> None:
    data = datasets.Dataset.from_dict({"text": ["w0 w1", "w2 what"], "label": [1, 0], "method": ["x", "y"]})
    encoded = tokenize(data, task("text"), tokenizer, max_length=32)
    assert encoded.to_dict() == {
        "input_ids": [[2, 4, 5, 3], [2, 6, 1, 3]],
        "token_type_ids": [[0] * 4] * 2,
        "attention_mask": [[1] * 4] * 2,
        "labels": [1, 0],
        "length": [4, 4],
    }


def test_pairs_are_cut_from_the_longer_side(tokenizer: PreTrainedTokenizerFast) -> None:
    data = datasets.Dataset.from_dict({"a": ["w0 w1 w2 w3 w4"], "b": ["w5"], "label": [1]})
    with pytest.warns(UserWarning, match="100% of 1 texts are longer than max_length=6 tokens and were cut"):
        encoded = tokenize(data, task("a", "b"), tokenizer, max_length=6)
    assert encoded["input_ids"][0] == [2, 4, 5, 3, 9, 3]
    assert encoded["token_type_ids"][0] == [0, 0, 0, 0, 1, 1]


@pytest.mark.parametrize(("cut", "warned"), [(5, False), (6, True)])
def test_warns_when_more_than_a_twentieth_is_cut(tokenizer: Any, cut: int, warned: bool) -> None:
    # "w0 w1" fills the four tokens exactly and is not cut.
    data = datasets.Dataset.from_dict({"text": ["w0 w1 w2"] * cut + ["w0 w1"] * (100 - cut), "label": [0] * 100})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tokenize(data, task("text"), tokenizer, max_length=4)
    assert len([w for w in caught if "were cut" in str(w.message)]) == int(warned)


def test_more_tokens_than_the_model_has(tokenizer: PreTrainedTokenizerFast) -> None:
    data = datasets.Dataset.from_dict({"text": ["w0"], "label": [0]})
    with pytest.raises(DataError, match="max_length 33 is more than the model's 32 tokens"):
        tokenize(data, task("text"), tokenizer, max_length=33)
