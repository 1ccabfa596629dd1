"""Texts that were found on one model and tried on another, against asking that model directly."""

from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import ClassLabel, Dataset
from transformers import BertForSequenceClassification, PreTrainedTokenizerFast

from rosewood.attacks import Genetic, Pwws, Typos
from rosewood.attacks.runner.attack import Attack
from rosewood.attacks.runner.replay import replay
from rosewood.errors import RunError
from rosewood.words.lexicon import Lexicon
from tiny_text import tiny_classifier

METHODS = [Pwws(), Typos(), Genetic(population=4, generations=2, min_log_ratio=None)]


@pytest.fixture
def other() -> BertForSequenceClassification:
    """A model with other weights."""
    torch.manual_seed(5)
    model = tiny_classifier()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.05 * torch.randn_like(weight))
    return model


def answers(model: BertForSequenceClassification, tokenizer: PreTrainedTokenizerFast, texts: list[str]) -> list[int]:
    model.eval()
    with torch.no_grad():
        return [int(model(**tokenizer(text, return_tensors="pt")).logits.argmax()) for text in texts]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_a_replay_is_what_the_other_model_answers(
    method: Attack,
    model: BertForSequenceClassification,
    other: BertForSequenceClassification,
    tokenizer: PreTrainedTokenizerFast,
    single: Dataset,
    run: Any,
) -> None:
    source = run(model, single, method)
    found = [each for each in source.examples if each.status == "broken"]
    result = replay(other, tokenizer, source, progress=False)
    before = answers(other, tokenizer, [each.texts["text"] for each in found])
    after = answers(other, tokenizer, [each.adversarial for each in found])
    wanted = {
        each.row: "wrong" if one != each.label else "broken" if two != each.label else "robust"
        for each, one, two in zip(found, before, after, strict=True)
    }
    assert {each.row: each.status for each in result.examples} == wanted
    assert {"broken", "robust"} <= set(wanted.values())
    by_row = {each.row: each for each in found}
    for each in result.examples:
        if each.status == "broken":
            known = by_row[each.row]
            assert (each.adversarial, each.changes, each.words) == (known.adversarial, known.changes, known.words)
    right = [row for row, status in wanted.items() if status != "wrong"]
    assert result.summary.success_rate == sum(wanted[row] == "broken" for row in right) / len(right)
    assert result.settings == {"attack": method.name, "found_on": source.model, "source": source.fingerprint}


def test_on_the_model_itself_everything_breaks(
    model: BertForSequenceClassification, tokenizer: PreTrainedTokenizerFast, pairs: Dataset, model3: Any, run: Any
) -> None:
    source = run(model3, pairs, Pwws())
    result = replay(model3, tokenizer, source, progress=False, batch_size=3)
    assert result.summary.success_rate == 1.0 and result.summary.clean_accuracy == 1.0
    assert result.field == source.field == "hypothesis"


def test_labels_go_by_their_names(
    model: BertForSequenceClassification, tokenizer: PreTrainedTokenizerFast, single: Dataset, run: Any
) -> None:
    model.config.id2label = {0: "bad", 1: "good"}
    source = run(model, single.cast_column("label", ClassLabel(names=["bad", "good"])), Pwws())
    swapped = tiny_classifier()
    swapped.config.id2label = {0: "good", 1: "bad"}
    with torch.no_grad():
        for weight in swapped.classifier.parameters():
            weight.copy_(weight.flip(0))
    assert replay(swapped, tokenizer, source, progress=False).summary.success_rate == 1.0


def test_a_replay_goes_on_in_its_folder(
    model: BertForSequenceClassification,
    other: BertForSequenceClassification,
    tokenizer: PreTrainedTokenizerFast,
    single: Dataset,
    run: Any,
    tmp_path: Path,
) -> None:
    run(model, single, Pwws(), folder=tmp_path / "found")
    first = replay(other, tokenizer, tmp_path / "found", folder=tmp_path / "tried", progress=False)
    assert replay(other, tokenizer, tmp_path / "found", folder=tmp_path / "tried", progress=False) == first
    with pytest.raises(RunError, match="another model"):
        replay(model, tokenizer, tmp_path / "found", folder=tmp_path / "tried", progress=False)


def test_what_cannot_be_replayed_is_refused(
    model: BertForSequenceClassification, tokenizer: PreTrainedTokenizerFast, model3: Any, pairs: Dataset, run: Any
) -> None:
    with pytest.raises(RunError, match="nothing to replay"):
        replay(
            model, tokenizer, run(model3, pairs, Pwws(), lexicon=Lexicon.of({"nowhere": ["absent"]})), progress=False
        )
    source = run(model3, pairs, Pwws())
    other = [each.model_copy(update={"label": 2}) for each in source.examples]
    with pytest.raises(RunError, match="labels up to 2"):
        replay(model, tokenizer, source.model_copy(update={"examples": other}), progress=False)
