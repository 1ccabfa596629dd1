"""Adapters are found by their structure, and every part of a recipe finds its place beside them."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import AdaLoraConfig, IA3Config, LoraConfig, PromptTuningConfig, get_peft_model
from torch import nn
from transformers import GPT2Config, GPT2ForSequenceClassification

import rosewood
from rosewood.config.settings import Lora
from rosewood.errors import RecipeError, RunError
from rosewood.models.adapters import encoder, low_rank_changes, with_adapter, without_adapter
from rosewood.models.modes import dropout_sites
from rosewood.models.parameters import candidate_names, pretrained_names
from rosewood.models.sites import FeedForwards, Place, Site
from rosewood.perturbations.weight_ascent import WeightAscent
from rosewood.protocol import Run
from rosewood.recipe import load_recipe
from rosewood.training.trainer import RobustTrainer
from tiny import TinyData, arguments, tiny_bert, trained
from tiny_lora import block_factors, moved, tiny_lora, trainable_names

OTHERS: dict[str, Any] = {
    "IA3": IA3Config(
        task_type="SEQ_CLS", target_modules=["query", "output.dense"], feedforward_modules=["output.dense"]
    ),
    "ADALORA": AdaLoraConfig(task_type="SEQ_CLS", target_modules=["query"], init_r=2, target_r=1, total_step=10),
}


def test_a_plain_model_has_no_adapter() -> None:
    model = tiny_bert()
    assert without_adapter(model) is model
    assert encoder(model) is model.bert
    assert encoder(nn.Linear(2, 2)) is None
    assert low_rank_changes(model) == []


def test_the_parts_of_a_lora_model() -> None:
    model = tiny_lora(target_modules=["word_embeddings", "query"])
    bare = model.base_model.model
    assert without_adapter(model) is bare
    assert encoder(model) is bare.bert
    parameters = dict(model.named_parameters())
    changes = low_rank_changes(model)
    assert [change.embedding for change in changes] == [True, False, False]
    for change in changes:
        assert change.scaling == 3
        outputs_by_inputs = parameters[change.base].T if change.embedding else parameters[change.base]
        assert (parameters[change.up] @ parameters[change.down]).shape == outputs_by_inputs.shape
    assert pretrained_names(model) == []


def test_only_active_adapters_count() -> None:
    model = tiny_lora(target_modules=["query"])
    model.add_adapter("other", LoraConfig(task_type="SEQ_CLS", r=4, target_modules=["query", "key"]))
    assert len(low_rank_changes(model)) == 2
    model.set_adapter("other")
    assert {change.down.split(".")[-2] for change in low_rank_changes(model)} == {"other"}
    assert len(low_rank_changes(model)) == 4


@pytest.mark.parametrize("biases", [False, True])
def test_the_candidates_are_the_factors_inside_the_blocks(biases: bool) -> None:
    model = tiny_lora()
    assert set(candidate_names(model, biases=biases)) == block_factors(model)


def test_an_adapter_that_transformers_puts_inside_the_model() -> None:
    model = tiny_bert()
    model.add_adapter(LoraConfig(r=2, target_modules=["query"]))
    assert len(low_rank_changes(model)) == 2
    assert encoder(model) is model.bert
    assert all(".lora_" in name for name in candidate_names(model))


def test_dropout_before_the_adapter_is_dropout() -> None:
    model = tiny_lora()
    names = {id(module): name for name, module in model.named_modules()}
    assert any("lora_dropout" in names[id(module)] for module, _ in dropout_sites(model))


def test_places_of_a_lora_model_are_those_of_its_base() -> None:
    model, ids = moved(tiny_lora()).eval(), TinyData().ids
    merged = moved(tiny_lora()).merge_and_unload().eval()
    noise = torch.randn(len(ids), ids.shape[1], 16, dtype=torch.float64)
    places: list[Place] = ["words", "encoder"]
    for place in places:
        logits = []
        for each in (model, merged):
            with Site(place, each).changed(lambda hidden: hidden + noise):
                logits.append(each(input_ids=ids).logits)
        torch.testing.assert_close(logits[0], logits[1])
        assert not torch.allclose(logits[0], model(input_ids=ids).logits)
    seen: list[list[torch.Tensor]] = []
    for each in (model, merged):
        seen.append([])
        with FeedForwards(each).changed(lambda layer, output, attention: seen[-1].append(output) or output):
            each(input_ids=ids)
    assert len(seen[0]) == 2
    torch.testing.assert_close(seen[0], seen[1])


def test_the_feed_forward_output_of_gpt2_with_an_adapter() -> None:
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=50, n_positions=16, n_embd=16, n_layer=2, n_head=2, pad_token_id=0, attn_implementation="eager"
    )
    adapter = LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["c_proj"], fan_in_fan_out=True)
    model = get_peft_model(GPT2ForSequenceClassification(config).double(), adapter)
    model, outputs = moved(model).eval(), []
    with FeedForwards(model).changed(lambda layer, output, attention: outputs.append(output) or output):
        expected = model(input_ids=TinyData().ids).logits
    torch.testing.assert_close(model.merge_and_unload()(input_ids=TinyData().ids).logits, expected)
    assert [output.shape for output in outputs] == [(64, 8, 16)] * 2


def test_weight_ascent_leaves_an_adapter_of_the_word_embeddings_where_it_is() -> None:
    model = tiny_lora(target_modules=["word_embeddings", "query"])
    run = Run(model, 1, load_recipe("advweight").all_stages()[0])
    ascending = set(WeightAscent().start(run)._weights)
    assert ascending == {name for name in trainable_names(model) if "word_embeddings" not in name}


@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("recipe", ["vanilla", "rose-ensemble", "mixout", "lp-ft", "smart", "roast"])
def test_adapters_of_other_kinds_train_too(recipe: str, kind: str, tmp_path: Path) -> None:
    model = get_peft_model(tiny_bert(), OTHERS[kind])
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    trained(recipe, tmp_path, model=model, data=TinyData(16), max_steps=4)
    changed = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    assert changed
    assert changed <= trainable_names(model)


@pytest.mark.parametrize("kind", OTHERS)
def test_l2_sp_refuses_adapters_whose_change_it_does_not_know(kind: str, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=f"not how far {kind} does: use LoRA"):
        RobustTrainer(model=get_peft_model(tiny_bert(), OTHERS[kind]), args=arguments(tmp_path), recipe="wconsol")


def test_l2_sp_refuses_several_adapters_at_once(tmp_path: Path) -> None:
    model = get_peft_model(tiny_bert(), LoraConfig(r=2, target_modules=["query"]))
    model.add_adapter("other", LoraConfig(r=2, target_modules=["query"]))
    model.base_model.set_adapter(["default", "other"])
    with pytest.raises(RecipeError, match="several are active: activate one"):
        RobustTrainer(model=model, args=arguments(tmp_path), recipe="wconsol")


@pytest.mark.parametrize("recipe", ["advembed", "r3f", "hiddencut", "freelb", "smart"])
def test_virtual_tokens_refuse_what_changes_single_tokens(recipe: str, tmp_path: Path) -> None:
    model = get_peft_model(tiny_bert(), PromptTuningConfig(task_type="SEQ_CLS", num_virtual_tokens=3))
    with pytest.raises(RecipeError, match="PROMPT_TUNING puts tokens of its own before them"):
        RobustTrainer(model=model, args=arguments(tmp_path), recipe=recipe)


def test_no_module_needs_peft_to_be_imported() -> None:
    for file in Path(rosewood.__file__).parent.rglob("*.py"):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                assert "peft" not in ast.unparse(node).replace("peft_utils", ""), file


def test_lora_without_peft_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(RunError, match=r"LoRA needs the package peft: pip install 'rosewood\[lora\]'"):
        with_adapter(tiny_bert(), Lora(rank=8, alpha=16), [])
