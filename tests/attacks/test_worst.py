"""The worst case over several attacks, against each of them alone and against every text there is."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
import torch
from datasets import Dataset
from torch import nn
from transformers import BertForSequenceClassification, PreTrainedTokenizerFast

from rosewood import attack, robust_accuracy, wrap
from rosewood.attacks.gradient import Gradient
from rosewood.attacks.pwws import Pwws
from rosewood.attacks.runner.report import added_by, title_of
from rosewood.attacks.typos import Typos
from rosewood.attacks.worst import Worst
from rosewood.errors import RecipeError, RunError
from rosewood.results import AttackResult
from rosewood.words.lexicon import Lexicon
from tiny_attack import ENTRIES, WORDS, predicted

Run = Callable[..., AttackResult]


def test_an_example_breaks_where_one_of_the_attacks_breaks_it(
    model: BertForSequenceClassification, single: Dataset, run: Run
) -> None:
    alone = [run(model, single, method).examples for method in (Gradient(), Pwws(), Typos())]
    worst = run(model, single, Worst(attacks="gradient,pwws,typos"))
    for example, *others in zip(worst.examples, *alone, strict=True):
        names = [name for name, one in zip(("gradient", "pwws", "typos"), others, strict=True) if one.adversarial]
        assert (example.status == "broken") == bool(names)
        if names:  # the first of them, with the text that it finds alone
            assert example.broken_by == names[0]
            assert example.adversarial == next(one.adversarial for one in others if one.adversarial)
    counts = worst.summary.broken_by
    assert sum(counts.values()) == worst.summary.counts["broken"] and len(counts) > 1
    assert f"gradient {counts['gradient']}" in (added_by(worst) or "")
    assert added_by(run(model, single, Pwws())) is None


def test_it_finds_what_exists_and_nothing_else(
    model: BertForSequenceClassification, tokenizer: PreTrainedTokenizerFast, run: Run
) -> None:
    """On texts of at most 4 words with at most 3 substitutes, all texts there are can be asked for."""
    entries = {word: others[:3] for word, others in ENTRIES.items()}
    torch.manual_seed(1)
    texts = [" ".join(WORDS[i] for i in torch.randint(len(WORDS), (4,))) for _ in range(60)]
    model.eval()
    broken = {}
    labels = predicted(model, tokenizer, texts)
    for text, label in zip(texts, labels, strict=True):
        choices = [[word, *entries.get(word, [])] for word in text.split()]
        candidates = [" ".join(words) for words in product(*choices)]
        with torch.no_grad():
            answers = model(**tokenizer(candidates, padding=True, return_tensors="pt")).logits.argmax(dim=1)
        broken[text] = {each for each, answer in zip(candidates, answers.tolist(), strict=True) if answer != label}
    data = Dataset.from_dict({"text": texts, "label": labels})
    result = run(model, data, Worst(), lexicon=Lexicon.of(entries))
    found = {example.texts["text"]: example.adversarial for example in result.examples}
    assert all(text is None or text in broken[original] for original, text in found.items())
    agree = sum((found[text] is not None) == bool(broken[text]) for text in found)
    assert agree >= 0.95 * len(found)
    assert 10 < sum(map(bool, broken.values())) < len(found) - 10


def test_what_one_attack_cannot_spend_is_for_the_next(
    model: BertForSequenceClassification, single: Dataset, run: Run
) -> None:
    """Slopes cost three queries: with two there are none, and one that needs none goes on."""
    for first, budget in (("gradient", 2), ("gradient", 60)):
        alone = run(model, single, Worst(attacks=first), max_queries=budget).examples
        both = run(model, single, Worst(attacks=f"{first},pwws"), max_queries=budget).examples
        for one, other in zip(alone, both, strict=True):
            assert other.queries == budget or other.status != "out_of_queries"
            assert other.status == "broken" or one.status != "broken"
        assert sum(each.queries for each in alone) < sum(each.queries for each in both)


@pytest.mark.parametrize("threat", ["characters", "all"])
def test_threats(threat: str, model: BertForSequenceClassification, single: Dataset, run: Run) -> None:
    result = run(model, single.select(range(8)), Worst(threat=threat))  # type: ignore[arg-type]
    letters = run(model, single.select(range(8)), Typos())
    assert result.summary.robust_accuracy <= letters.summary.robust_accuracy
    assert result.summary.attacked and set(Worst(threat=threat).members) >= {"typos", "imperceptible"}  # type: ignore[arg-type]


def test_by_name(model: BertForSequenceClassification, tokenizer: PreTrainedTokenizerFast, single: Dataset) -> None:
    summary = robust_accuracy(model, tokenizer, single, "worst", examples=6, lexicon=Lexicon.of(ENTRIES))
    assert summary.examples == 6 and summary.broken_by
    with pytest.raises(RecipeError, match="unknown attack 'pwwz'"):
        Worst(attacks="pwwz").needs()


class WithoutParameters(nn.Module):
    """A model that runs outside torch, as one in an ONNX file does."""


def test_a_model_without_gradients_is_attacked_without(
    model: BertForSequenceClassification, tokenizer: PreTrainedTokenizerFast, single: Dataset
) -> None:
    wrapped = wrap(model, tokenizer, "corrected", texts=["good film"])
    data, settings = single.select(range(8)), {"lexicon": Lexicon.of(ENTRIES), "progress": False}

    def attacked(method: Worst) -> AttackResult:
        return attack(wrapped, wrapped.tokenizer, data, method, **settings)  # type: ignore[arg-type]

    found, explicit = attacked(Worst()), attacked(Worst(white_box=False))
    assert found.settings == {"threat": "words", "attacks": None, "white_box": False}
    assert (found.fingerprint, found.examples) == (explicit.fingerprint, explicit.examples)
    assert found.summary.broken_by and "gradient" not in found.summary.broken_by
    assert title_of(found).startswith("worst without gradients")
    with pytest.raises(RunError, match="a model with a defence around it has none"):
        attacked(Worst(attacks="gradient,pwws"))
    assert attack(model, tokenizer, data, Worst(), **settings).settings == {"threat": "words", "attacks": None}  # type: ignore[arg-type]
    outside = WithoutParameters()
    assert Worst().suited_to(outside) == Worst(white_box=False)
    assert "WithoutParameters has none" in Gradient().problems_with(outside)[0]
