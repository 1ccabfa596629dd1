"""Predictions do not depend on batching, order or repetition, and leave the model as it was."""

from collections.abc import Callable
from random import Random

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import BertForSequenceClassification, PreTrainedTokenizerFast

from rosewood.data.examples import tokenize
from rosewood.data.tasks import build_task
from rosewood.errors import RunError
from rosewood.evaluation.predict import predict

Make = Callable[..., BertForSequenceClassification]


def texts(count: int, seed: int = 0) -> list[str]:
    rng = Random(seed)
    return ["".join(rng.choices("abcdef  ", k=rng.randint(1, 25))) for _ in range(count)]


def one_by_one(
    model: BertForSequenceClassification,
    tokenizer: PreTrainedTokenizerFast,
    rows: list[tuple],
    max_length: int,
) -> np.ndarray:
    """The oracle: every row on its own, without padding or sharing."""
    model.eval()
    with torch.no_grad():
        outputs = [
            model(**tokenizer(*row, return_tensors="pt", truncation=True, max_length=max_length)).logits for row in rows
        ]
    model.train()
    return torch.cat(outputs).numpy()


@pytest.mark.parametrize("batch_size", [1, 7, 64])
@pytest.mark.parametrize("fields", [["one"], ["one", "two"]])
def test_equals_row_by_row_in_the_order_of_the_dataset(
    make_model: Make, tokenizer: PreTrainedTokenizerFast, batch_size: int, fields: list[str]
) -> None:
    model = make_model(("a", "b", "c"))
    dataset = Dataset.from_dict({"one": texts(40), "two": texts(40, seed=1), "label": [0] * 40})
    logits = predict(model, tokenizer, dataset, fields, max_length=20, batch_size=batch_size)
    rows = list(zip(*(dataset[field] for field in fields), strict=True))
    expected = one_by_one(model, tokenizer, rows, max_length=20)
    assert logits.shape == (40, 3) and logits.dtype == np.float32
    np.testing.assert_allclose(logits, expected, atol=1e-5)
    # The oracle means something only if the rows differ from one another.
    assert len(np.unique(expected.round(3), axis=0)) > 30


def test_batch_size_one_equals_sixty_four(make_model: Make, tokenizer: PreTrainedTokenizerFast) -> None:
    model, dataset = make_model(), Dataset.from_dict({"text": texts(70)})
    small = predict(model, tokenizer, dataset, ["text"], batch_size=1, max_length=60)
    large = predict(model, tokenizer, dataset, ["text"], batch_size=64, max_length=60)
    np.testing.assert_allclose(small, large, atol=1e-5)


def test_repeated_rows_run_once(make_model: Make, tokenizer: PreTrainedTokenizerFast) -> None:
    model, shapes = make_model(), []
    model.register_forward_pre_hook(
        lambda _, __, inputs: shapes.append(tuple(inputs["input_ids"].shape)), with_kwargs=True
    )
    dataset = Dataset.from_dict({"one": ["film", "good", "film", "film"], "two": ["a", "b", "a", "b"]})
    logits = predict(model, tokenizer, dataset, ["one", "two"], batch_size=2)
    assert sum(rows for rows, _ in shapes) == 3  # ("film", "a") twice, and only the pair counts
    np.testing.assert_array_equal(logits[0], logits[2])
    assert not np.allclose(logits[0], logits[3])


def test_batches_are_no_wider_than_their_longest_text(make_model: Make, tokenizer: PreTrainedTokenizerFast) -> None:
    model, widths = make_model(), []
    model.register_forward_pre_hook(lambda _, __, inputs: widths.append(inputs["input_ids"].shape[1]), with_kwargs=True)
    dataset = Dataset.from_dict({"text": ["a", "a b c d e f g h", "b", "b c d e f g h a"]})
    predict(model, tokenizer, dataset, ["text"], batch_size=2, max_length=8)
    assert widths == [8, 3]


def modes(model: torch.nn.Module) -> list[bool]:
    return [module.training for module in model.modules()]


def test_modes_are_restored_module_by_module(make_model: Make, tokenizer: PreTrainedTokenizerFast) -> None:
    model, dataset = make_model(), Dataset.from_dict({"text": ["film"]})
    model.bert.eval()  # as a linear probe does
    before = modes(model)
    first = predict(model, tokenizer, dataset, ["text"])
    assert modes(model) == before and len(set(before)) == 2
    np.testing.assert_array_equal(first, predict(model, tokenizer, dataset, ["text"]))  # no dropout


def test_modes_are_restored_after_a_failure(make_model: Make, tokenizer: PreTrainedTokenizerFast) -> None:
    model = make_model()

    def fail(*_: object) -> None:
        raise RuntimeError("out of memory")

    model.register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        predict(model, tokenizer, Dataset.from_dict({"text": ["film"]}), ["text"])
    assert all(modes(model))


def test_no_rows_give_no_scores(make_model: Make, tokenizer: PreTrainedTokenizerFast) -> None:
    assert predict(make_model(), tokenizer, Dataset.from_dict({"text": []}), ["text"]).shape == (0, 2)


def test_a_diverged_model_is_named(make_model: Make, tokenizer: PreTrainedTokenizerFast) -> None:
    model = make_model()
    torch.nn.init.constant_(model.classifier.bias, float("nan"))
    with pytest.raises(RunError, match="not finite numbers; its training has likely diverged"):
        predict(model, tokenizer, Dataset.from_dict({"text": ["film"]}), ["text"])


def test_too_long_for_the_model(make_model: Make, tokenizer: PreTrainedTokenizerFast) -> None:
    with pytest.raises(RunError, match="max_length 129 is more than the model's 128 tokens"):
        predict(make_model(), tokenizer, Dataset.from_dict({"text": ["film"]}), ["text"], max_length=129)


@pytest.mark.filterwarnings("ignore:.*were cut")
def test_the_model_sees_the_tokens_it_was_trained_on(make_model: Make, tokenizer: PreTrainedTokenizerFast) -> None:
    splits = {"test": {"folder": {"file": "unused.jsonl"}}}
    task = build_task({"name": "t", "title": "t", "text": ["one", "two"], "labels": ["a", "b"], "splits": splits}, "t")
    dataset = Dataset.from_dict({"one": texts(9), "two": texts(9, seed=1), "label": [0] * 9})
    model, seen = make_model(), []
    model.register_forward_pre_hook(
        lambda _, __, inputs: seen.append({key: values[0].tolist() for key, values in inputs.items()}),
        with_kwargs=True,
    )
    predict(model, tokenizer, dataset, task.text, max_length=20, batch_size=1)
    trained = tokenize(dataset, task, tokenizer, max_length=20).remove_columns(["labels", "length"]).to_list()
    assert sorted(seen, key=str) == sorted(({key: row[key] for key in seen[0]} for row in trained), key=str)
    assert {len(row["input_ids"]) for row in seen} >= {20}  # some were cut
