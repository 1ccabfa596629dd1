"""What RobustTrainer is given: wrong models, arguments and data are refused with a sentence, before any work."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from datasets import Dataset, DatasetDict

from rosewood.errors import DataError, RecipeError, RosewoodError, RunError
from rosewood.selections.rose import Rose
from rosewood.training.checks import check_training_data
from rosewood.training.trainer import RobustTrainer
from tiny import TinyData, arguments, tiny_bert
from tiny_substitutes import Substituted

TOKENS = {"input_ids": [[5, 6, 7, 8]] * 8, "attention_mask": [[1] * 4] * 8}
TEXTS = {"text": ["good", "bad"] * 4, "label": [1, 0] * 4}


def table(**columns: Any) -> Dataset:
    return Dataset.from_dict(TOKENS | columns)


def trainer(directory: Path, **given: Any) -> RobustTrainer:
    usual = {"model": tiny_bert(), "args": arguments(directory, max_steps=1), "train_dataset": table(labels=[0, 1] * 4)}
    return RobustTrainer(**usual | given)


REFUSED: dict[str, tuple[dict[str, Any], type[RosewoodError], str]] = {
    "a model's name": ({"model": "minilm"}, RunError, r"model: expected a model, got str \('minilm'\): load it first"),
    "arguments as a dict": (
        {"args": {"output_dir": "x"}},
        RunError,
        "expected transformers.*TrainingArguments, got dict",
    ),
    "a component as recipe": ({"recipe": Rose()}, RecipeError, "a YAML file or a Recipe, got Rose"),
    "a watch's name": ({"watches": ["drift"]}, RunError, r"expected a list of watches .*, got \['drift'\]"),
    "skipped steps": ({"max_skipped_steps": "many"}, RunError, "expected a whole number from 0 on, got 'many'"),
    "a DataFrame": ({"train_dataset": pd.DataFrame(TEXTS)}, DataError, r"got pandas.DataFrame: .*from_pandas"),
    "a name": ({"train_dataset": "sst2"}, DataError, r"expected tokenized examples.*got str \('sst2'\)"),
    "columns": ({"train_dataset": TEXTS}, DataError, "got dict: datasets.Dataset.from_dict"),
    "splits": ({"train_dataset": DatasetDict(train=table())}, DataError, r"choose data\['train'\]"),
    "evaluation data": ({"eval_dataset": {"a": "sst2"}}, DataError, r"eval_dataset\['a'\]: expected tokenized"),
}
UNTRAINABLE: dict[str, tuple[Any, str]] = {
    "nothing": (None, "nothing to train on: give RobustTrainer a train_dataset"),
    "no examples": (Dataset.from_dict({"input_ids": [], "labels": []}), "train_dataset has no examples"),
    "texts": (["good", "bad"], r"examples that are mappings .*, got str \('good'\): tokenize the texts"),
    "tuples": ([("good", 1)], "examples that are mappings .*, got tuple"),
    "untokenized": (Dataset.from_dict(TEXTS), "no column input_ids, it has text, label: the model reads tokens"),
    "untokenized list": ([{"text": "good", "label": 1}], "no column input_ids, it has text, label"),
    "no labels": (
        table(),
        "no labels: expected a column labels or label or label_ids, it has input_ids, att",
    ),
    "another name": (table(target=[0, 1] * 4), "no labels: .* it has input_ids, attention_mask, target"),
    "names": (table(label=["a", "b"] * 4), "row 0: expected in label a whole number from 0 to 1, .* got 'a': .*encode"),
    "too high": (table(labels=[0, 3] * 4), "row 1: .* got 3: load the model with num_labels=4"),
    "too low": (table(labels=[0, -1] * 4), "row 1: .* got -1: number the labels from 0 on"),
    "shares": (table(labels=[0.5, 1.0] * 4), "row 0: .* got 0.5"),
    "missing": (table(labels=[0, None] * 4), "row 1: .* got None: leave out rows without a label"),
    "tensors": ([TinyData(classes=9)[i] for i in range(20)], r"row \d+: .* got \d: load the model with num_labels="),
    "unpadded": (
        Dataset.from_dict({"input_ids": [[5], [5, 6]] * 4, "labels": [0, 1] * 4}),
        "texts of 1 to 2 tokens, and nothing that pads them: give RobustTrainer processing_class=tokenizer",
    ),
}


@pytest.mark.parametrize(("given", "error", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_refused_when_made(given: dict[str, Any], error: type[RosewoodError], words: str, tmp_path: Path) -> None:
    with pytest.raises(error, match=words):
        trainer(tmp_path, **given)


@pytest.mark.parametrize(("data", "words"), UNTRAINABLE.values(), ids=UNTRAINABLE.keys())
def test_refused_before_the_first_step(data: Any, words: str, tmp_path: Path) -> None:
    made = trainer(tmp_path, train_dataset=data)
    with pytest.raises(DataError, match=words):
        made.train()
    assert made.state.global_step == 0


def test_labels_are_looked_at_also_where_words_are_replaced(tmp_path: Path) -> None:
    made = trainer(tmp_path, train_dataset=Substituted(TinyData()), recipe="adv-base")
    made.train_dataset = [Substituted(TinyData())[0] | {"labels": torch.tensor(7)}]
    with pytest.raises(DataError, match=r"row 0: .* got 7: load the model with num_labels=8"):
        made.train()


def tokenized(rows: list[Any]) -> dict[str, torch.Tensor]:
    ids = torch.tensor([[5 + len(text), 6] for text, _ in rows])
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": torch.tensor([y for _, y in rows])}


def unlabelled(outputs: Any, labels: torch.Tensor | None, num_items_in_batch: Any = None) -> torch.Tensor:
    return outputs["logits"].square().mean()


ACCEPTED: dict[str, dict[str, Any]] = {
    "a column label": {"train_dataset": table(label=[0, 1] * 4)},
    "an ignored label": {"train_dataset": table(labels=[0, 1, -100, 1] * 2)},
    "a list": {"train_dataset": [TinyData()[i] for i in range(8)]},
    "numpy": {"train_dataset": table(labels=[0, 1] * 4).with_format("numpy")},
    "a collator that tokenizes": {"train_dataset": [("good", 1), ("bad", 0)] * 4, "data_collator": tokenized},
    "a loss without labels": {"train_dataset": table(), "compute_loss_func": unlabelled},
    "one number to predict": {"model": tiny_bert(num_labels=1), "train_dataset": table(labels=[0.5, 7.0] * 4)},
    "several labels": {
        "model": tiny_bert(num_labels=2, problem_type="multi_label_classification"),
        "train_dataset": table(labels=[[0.0, 1.0], [1.0, 1.0]] * 4),
    },
    "a stream": {"train_dataset": table(labels=[0, 1] * 4).to_iterable_dataset()},
}


@pytest.mark.parametrize("given", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_what_trains_is_not_refused(given: dict[str, Any], tmp_path: Path) -> None:
    made = trainer(tmp_path, **given)
    if "model" in given:
        made.model.double()
    made.train()
    assert made.state.global_step == 1


class Drawn(TinyData):
    """Draws a label whenever an example is asked for."""

    def __getitem__(self, i: int) -> dict[str, torch.Tensor]:
        return super().__getitem__(i) | {"labels": torch.randint(0, 2, ())}


def test_looking_at_examples_leaves_the_random_numbers_alone(tmp_path: Path) -> None:
    made = trainer(tmp_path, train_dataset=Drawn())
    before = torch.get_rng_state()
    check_training_data(made.train_dataset, made.data_collator, made.model, ["labels"])
    assert torch.equal(torch.get_rng_state(), before)
