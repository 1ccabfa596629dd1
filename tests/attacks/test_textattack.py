"""The adapter to TextAttack, against a stand-in that has the part of its interface that the adapter uses."""

from __future__ import annotations

import pickle
import random
import sys
from collections import OrderedDict
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import BertForSequenceClassification, PreTrainedTokenizerFast

from rosewood.attacks.runner.api import choose_attack, prepare
from rosewood.attacks.runner.search import Resources
from rosewood.attacks.runner.textattack import TextAttackRecipe
from rosewood.config.settings import AttackSettings
from rosewood.errors import RunError
from rosewood.results import AttackResult
from tiny_attack import WORDS

Run = Callable[..., AttackResult]


class ModelWrapper:
    """textattack.models.wrappers.ModelWrapper"""


class InputColumnModification:
    """textattack.constraints.pre_transformation.InputColumnModification"""

    def __init__(self, matching_column_labels: list[str], columns_to_ignore: set[str]) -> None:
        self.labels, self.ignored = matching_column_labels, columns_to_ignore


class AttackedText:
    """textattack.shared.AttackedText: one text as a string, two as a tuple."""

    def __init__(self, texts: OrderedDict[str, str]) -> None:
        self.texts = texts

    @property
    def tokenizer_input(self) -> str | tuple[str, ...]:
        values = tuple(self.texts.values())
        return values[0] if len(values) == 1 else values


class Attack:
    """textattack.Attack: swaps a word for a random one, ten times; `longer` also adds a word."""

    longer = False

    def __init__(self, wrapper: Any) -> None:
        self.goal_function = SimpleNamespace(query_budget=float("inf"), batch_size=32)
        self.pre_transformation_constraints: list[InputColumnModification] = []
        self.wrapper = wrapper

    @classmethod
    def build(cls, model_wrapper: Any) -> Attack:
        return cls(model_wrapper)

    def attack(self, example: OrderedDict[str, str], ground_truth_output: int) -> Any:
        assert isinstance(example, OrderedDict) and isinstance(ground_truth_output, int)
        clean = self._result(example, 1)
        if clean.raw_output.argmax() != ground_truth_output:
            return SkippedAttackResult(clean, clean)
        ignored = {name for each in self.pre_transformation_constraints for name in each.ignored}
        field = next(name for name in reversed(example) if name not in ignored)
        found, now = clean, example.copy()
        for queries in range(2, int(min(12, self.goal_function.query_budget + 1))):
            words = now[field].split()
            words[random.randrange(len(words))] = random.choice(WORDS)
            now[field] = " ".join([*words, "zz"] if self.longer else words)
            found = self._result(now.copy(), queries)
            if found.raw_output.argmax() != ground_truth_output:
                return SuccessfulAttackResult(clean, found)
        return FailedAttackResult(clean, found)

    def _result(self, texts: OrderedDict[str, str], queries: int) -> Any:
        text = AttackedText(texts)
        scores = torch.tensor(np.asarray(self.wrapper([text.tokenizer_input])))
        assert abs(float(scores.sum()) - 1) < 1e-6
        return SimpleNamespace(attacked_text=text, raw_output=scores[0].numpy(), num_queries=queries)


class Longer(Attack):
    longer = True


class SkippedAttackResult:
    def __init__(self, original_result: Any, perturbed_result: Any) -> None:
        self.original_result, self.perturbed_result = original_result, perturbed_result
        self.num_queries = perturbed_result.num_queries


class SuccessfulAttackResult(SkippedAttackResult):
    pass


class FailedAttackResult(SkippedAttackResult):
    pass


@pytest.fixture
def textattack(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"swap": "textattack.attack_recipes.Swap", "longer": "textattack.attack_recipes.Longer"}
    parts: dict[str, dict[str, Any]] = {
        "textattack": {},
        "textattack.attack_args": {"ATTACK_RECIPE_NAMES": names},
        "textattack.attack_recipes": {"Swap": Attack, "Longer": Longer},
        "textattack.models.wrappers": {"ModelWrapper": ModelWrapper},
        "textattack.constraints.pre_transformation": {"InputColumnModification": InputColumnModification},
    }
    for name, content in parts.items():
        module = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)


@pytest.mark.usefixtures("textattack")
@pytest.mark.parametrize("recipe", ["swap", "longer"])
def test_results_come_back_as_ours(
    recipe: str, model: BertForSequenceClassification, single: Dataset, run: Run, tmp_path: Path
) -> None:
    result = run(model, single, f"textattack:{recipe}", folder=tmp_path / "a")
    assert (result.attack, result.settings, result.lexicon is None) == ("textattack", {"recipe": recipe}, False)
    counts = result.summary.counts
    assert counts["wrong"] == 3 and counts["broken"] >= 5 and sum(counts.values()) == 30
    for example in result.examples:
        if example.status != "broken":
            continue
        assert "".join(before for before, _ in example.aligned) == example.texts["text"]
        assert "".join(after for _, after in example.aligned) == example.adversarial
        assert example.changes and example.adversarial_prediction != example.label and example.queries > 1
    again = run(model, single, f"textattack:{recipe}", folder=tmp_path / "b")
    assert again.examples == result.examples  # seeded, example by example
    half = run(model, single.select(range(15)), f"textattack:{recipe}")
    assert [e.adversarial for e in half.examples] == [e.adversarial for e in result.examples[:15]]


@pytest.mark.usefixtures("textattack")
def test_only_the_named_field_changes(model3: BertForSequenceClassification, pairs: Dataset, run: Run) -> None:
    for field in ("premise", "hypothesis"):
        result = run(model3, pairs, "textattack:swap", field=field)
        broken = [example for example in result.examples if example.status == "broken"]
        assert broken
        for example in broken:
            assert "".join(before for before, _ in example.aligned) == example.texts[field]


@pytest.mark.usefixtures("textattack")
def test_the_query_budget_is_handed_on(model: BertForSequenceClassification, single: Dataset, run: Run) -> None:
    counts = run(model, single, "textattack:swap", max_queries=3).summary.counts
    assert counts["out_of_queries"] > 0 and counts.get("robust", 0) == 0


@pytest.mark.usefixtures("textattack")
def test_it_can_be_sent_to_another_process(
    model: BertForSequenceClassification, tokenizer: PreTrainedTokenizerFast, single: Dataset
) -> None:
    campaign = prepare(model, tokenizer, single, TextAttackRecipe("swap"), Resources(), AttackSettings())
    here = list(campaign.records([1, 2], None))
    assert list(pickle.loads(pickle.dumps(campaign)).records([1, 2], None)) == here


def test_without_textattack_the_error_says_what_to_do(
    model: BertForSequenceClassification, single: Dataset, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rosewood.attacks.runner.textattack.find_spec", lambda _: None)
    with pytest.raises(RunError, match="textattack:pwws needs TextAttack, which is not installed: pip install textatt"):
        run(model, single, "textattack:pwws")


@pytest.mark.usefixtures("textattack")
def test_unknown_recipes_and_settings_are_refused(
    model: BertForSequenceClassification, single: Dataset, run: Run
) -> None:
    with pytest.raises(RunError, match=r"TextAttack has no recipe 'swop': did you mean swap\?"):
        run(model, single, "textattack:swop")
    with pytest.raises(RunError, match="textattack:swap has no settings here, got tries"):
        choose_attack("textattack:swap", {"tries": 3})
