"""An adapter on disk is a classifier: with the base model that it names, in safetensors only."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, PromptTuningConfig, get_peft_model
from transformers import BertForSequenceClassification, BertModel, PreTrainedTokenizerFast

from rosewood.errors import RunError
from rosewood.models.open import load_classifier
from tiny_lora import moved
from tiny_text import save_tiny_checkpoint

IDS = torch.tensor([[2, 57, 56, 3], [2, 8, 9, 3]])


def adapted(base: Path, labels: int = 3, **settings: Any) -> PeftModel:
    """A base model whose head has another number of outputs than the checkpoint's, as fine-tuning leaves it."""
    torch.manual_seed(0)
    model = BertForSequenceClassification.from_pretrained(base, num_labels=labels, ignore_mismatched_sizes=True)
    config = LoraConfig(task_type="SEQ_CLS", r=2, target_modules="all-linear", **settings)
    return moved(get_peft_model(model, config)).eval()


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return save_tiny_checkpoint(tmp_path / "base")


@pytest.fixture
def adapter(base: Path, tmp_path: Path) -> Path:
    adapted(base).save_pretrained(tmp_path / "adapter")
    return tmp_path / "adapter"


def test_an_adapter_as_peft_saves_it(base: Path, adapter: Path) -> None:
    model, tokenizer = load_classifier(str(adapter))
    assert isinstance(model, BertForSequenceClassification)
    assert model.config.num_labels == 3
    assert not model.training
    torch.testing.assert_close(model(input_ids=IDS).logits, adapted(base)(input_ids=IDS).logits, rtol=0, atol=1e-5)
    assert tokenizer("good film")["input_ids"] == [2, 57, 56, 3], "the base model's, because the adapter has none"


def test_names_of_labels_and_a_tokenizer_beside_the_adapter_count(
    adapter: Path, base: Path, tokenizer: PreTrainedTokenizerFast
) -> None:
    model = adapted(base)
    model.config.id2label = {0: "bad", 1: "fair", 2: "good"}
    model.config.save_pretrained(adapter)
    tokenizer.save_pretrained(adapter)
    for file in base.glob("tokenizer*"):
        file.unlink()
    loaded, _ = load_classifier(str(adapter))
    assert loaded.config.id2label == {0: "bad", 1: "fair", 2: "good"}


def test_a_merged_adapter_is_an_ordinary_model(
    base: Path, adapter: Path, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    adapted(base).merge_and_unload().save_pretrained(tmp_path / "merged")
    tokenizer.save_pretrained(tmp_path / "merged")
    logits = [load_classifier(str(folder))[0](input_ids=IDS).logits for folder in (adapter, tmp_path / "merged")]
    assert torch.equal(*logits)


def test_pickled_adapters_are_refused(adapter: Path) -> None:
    (adapter / "adapter_model.safetensors").unlink()
    torch.save({"anything": print}, adapter / "adapter_model.bin")
    with pytest.raises(RunError, match=r"cannot load a classifier from (?s:.*)adapter_model\.safetensors"):
        load_classifier(str(adapter))


def test_a_pickled_base_model_is_refused(base: Path, adapter: Path) -> None:
    (base / "model.safetensors").unlink()
    torch.save({}, base / "pytorch_model.bin")
    with pytest.raises(RunError, match="cannot load a classifier from"):
        load_classifier(str(adapter))


def test_a_base_model_that_is_gone_is_named(base: Path, adapter: Path) -> None:
    base.rename(base.with_name("elsewhere"))
    with pytest.raises(RunError, match=f"(?s)cannot load a classifier from {adapter}.*{base}"):
        load_classifier(str(adapter))


def test_an_adapter_without_a_base_model_is_refused(adapter: Path) -> None:
    file = adapter / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"base_model_name_or_path": None}))
    with pytest.raises(RunError, match=r"does not say which model .* base_model_name_or_path of its adapter_config"):
        load_classifier(str(adapter))


def test_layers_that_nobody_saved_are_refused(base: Path, tmp_path: Path) -> None:
    headless = BertModel.from_pretrained(base, add_pooling_layer=False)
    headless.save_pretrained(tmp_path / "headless")
    model = adapted(tmp_path / "headless")
    model.save_pretrained(tmp_path / "adapter")
    with pytest.raises(RunError, match=r"weights for bert\.pooler\.dense\.bias, bert\.pooler\.dense\.weight, which w"):
        load_classifier(str(tmp_path / "adapter"))


def test_what_cannot_be_merged_is_refused(base: Path, tmp_path: Path) -> None:
    model = BertForSequenceClassification.from_pretrained(base)
    get_peft_model(model, PromptTuningConfig(task_type="SEQ_CLS", num_virtual_tokens=2)).save_pretrained(tmp_path / "p")
    with pytest.raises(RunError, match="of the kind PROMPT_TUNING, which cannot be merged"):
        load_classifier(str(tmp_path / "p"))


def test_without_peft_it_says_what_to_install(adapter: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(
        RunError, match=r"holds an adapter, which needs the package peft: pip install 'rosewood\[lora\]'"
    ):
        load_classifier(str(adapter))
