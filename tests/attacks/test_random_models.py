"""Models that answer differently from call to call, among them one whose mean answer is known."""

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from test_engine import ATTACKS, OTHER_FORMS
from transformers import BertForSequenceClassification, PreTrainedTokenizerFast

from rosewood import attack, wrap
from rosewood.attacks import Gradient, Pwws, Typos
from rosewood.attacks.runner.attack import Attack
from rosewood.attacks.runner.replay import replay
from rosewood.defences import Smoothed
from rosewood.errors import RunError
from rosewood.models.defended import Drawn
from rosewood.models.modes import evaluating
from rosewood.models.scoring import Scorer
from rosewood.words.lexicon import Lexicon
from tiny_attack import ENTRIES, predicted, sentences
from tiny_text import tiny_classifier

NOISE = 0.6
"""About as much as the margins of the tiny model."""


class Noisy(BertForSequenceClassification):
    """The answers of a classifier with normal noise: what it answers on the mean is known."""

    def forward(self, *inputs: Any, **named: Any) -> Any:
        output = super().forward(*inputs, **named)
        output.logits = output.logits + NOISE * torch.randn_like(output.logits)
        return output


@pytest.fixture
def noisy(model: BertForSequenceClassification) -> Noisy:
    found = Noisy(model.config)
    found.load_state_dict(model.state_dict())
    return found


def margins(model: BertForSequenceClassification, tokenizer: Any, texts: list[str], labels: list[int]) -> np.ndarray:
    with evaluating(model), torch.no_grad():
        logits = torch.cat([model(**tokenizer(text, return_tensors="pt")).logits for text in texts]).numpy()
    rows = np.arange(len(texts))
    return logits[rows, labels] - logits[rows, 1 - np.array(labels)]


def test_draws_are_those_of_the_text_and_their_mean_is_that_of_the_model(
    model: BertForSequenceClassification, noisy: Noisy, tokenizer: PreTrainedTokenizerFast
) -> None:
    texts = [(text,) for text in sentences(5)]
    with evaluating(noisy), evaluating(model):
        drawn = Drawn(Scorer(noisy, tokenizer), 400)
        (batch,) = drawn.batches(texts)
        (alone,) = Drawn(Scorer(noisy, tokenizer, batch_size=3), 400).batches(texts[3:4])
        (fresh,) = Drawn(Scorer(noisy, tokenizer), 400, first=400).batches(texts)
        (plain,) = Scorer(model, tokenizer).batches(texts)
    assert np.allclose(batch.logits[3], alone.logits[0], atol=1e-5)
    assert not np.allclose(batch.logits[3], fresh.logits[3], atol=0.1)
    for row in range(5):
        true = plain.logits[plain.rows.index(row)]
        for found in (batch, fresh):
            assert np.abs(found.logits[row].mean(axis=0) - true).max() < 5 * NOISE / np.sqrt(400)
            assert found.logits[row].std(axis=0) == pytest.approx(NOISE, rel=0.2)


@pytest.mark.parametrize("method", [Pwws(), Gradient()], ids=lambda method: method.name)
def test_luck_breaks_nothing(
    method: Attack,
    model: BertForSequenceClassification,
    noisy: Noisy,
    tokenizer: PreTrainedTokenizerFast,
    single: Dataset,
    run: Any,
) -> None:
    """One draw calls texts broken that the model gets right on the mean; a majority of 21 rarely does."""

    def lucky(draws: int) -> tuple[int, int]:
        torch.manual_seed(0)
        result = run(noisy, single, method, draws=draws)
        found = [each for each in result.examples if each.status == "broken"]
        true = margins(model, tokenizer, [each.adversarial for each in found], [each.label for each in found])
        return int((true > 0).sum()), len(found)

    single = single.select(range(20))
    by_luck, of_one = lucky(1)
    by_majority, of_many = lucky(21)
    assert by_luck / of_one > 0.2
    assert by_majority / of_many < 0.15 and of_many >= 3
    plain = run(model, single, method).summary.counts["broken"]
    assert of_many >= 0.7 * plain


@pytest.mark.parametrize("method", (ATTACKS | OTHER_FORMS).values(), ids=ATTACKS | OTHER_FORMS)
def test_a_majority_of_new_draws_decides_in_every_attack(
    method: Attack, noisy: Noisy, tokenizer: PreTrainedTokenizerFast, single: Dataset, run: Any
) -> None:
    draws = 5
    result = run(noisy, single.select(range(8)), method, draws=draws)
    broken = [each for each in result.examples if each.status == "broken"]
    asked = [each.texts["text"] for each in result.examples] + [each.adversarial for each in broken]
    with evaluating(noisy):
        (fresh,) = Drawn(Scorer(noisy, tokenizer), draws, first=draws).batches([(text,) for text in asked])
    answers = {fresh.rows[i]: logits.argmax(axis=-1) for i, logits in enumerate(fresh.logits)}
    for row, each in enumerate([*result.examples, *broken]):
        wrong = 2 * int((answers[row] != each.label).sum()) > draws
        assert wrong == (each.status == "wrong" if row < len(result.examples) else True)
    assert broken and result.forwards == draws


def test_batch_size_changes_nothing(noisy: Noisy, single: Dataset, run: Any) -> None:
    data = single.select(range(10))
    one, other = (run(noisy, data, Pwws(), draws=5, batch_size=size) for size in (64, 3))
    for first, second in zip(one.examples, other.examples, strict=True):
        assert (first.status, first.adversarial, first.queries) == (second.status, second.adversarial, second.queries)
    assert one.forwards == 5 and one.draws == 5


@pytest.mark.parametrize(("by", "share"), [("delete", 0.15), ("dropout", 0.05)])
def test_of_a_smoothed_model_new_draws_decide(by: Any, share: float, tokenizer: PreTrainedTokenizerFast) -> None:
    draws, copies = 5, 4
    defence = Smoothed(by=by, copies=copies, combine="mean", share=share)
    model = wrap(tiny_classifier(), tokenizer, defence)
    texts = sentences(14)
    data = Dataset.from_dict({"text": texts, "label": predicted(model.inner, tokenizer, texts)})
    words = Lexicon.of(ENTRIES)
    result = attack(model, model.tokenizer, data, Pwws(), lexicon=words, draws=draws, progress=False)

    @cache
    def votes(text: str, label: int) -> int:
        """How many of the draws after those of the search are wrong, each of a model that is wrapped for it."""
        wrong = 0
        for draw in range(draws, 2 * draws):
            other = Smoothed(by=by, copies=copies, combine="mean", share=share, seed=defence.redrawn(0, draw).seed)
            asked = wrap(tiny_classifier(), tokenizer, other)
            with evaluating(asked):
                (answer,) = Scorer(asked, asked.tokenizer).batches([(text,)])
            wrong += int(answer.logits[0].argmax() != label)
        return wrong

    assert result.forwards == copies * draws
    for example in result.examples:
        assert (example.status == "wrong") == (2 * votes(example.texts["text"], example.label) > draws)
        if example.adversarial:
            assert 2 * votes(example.adversarial, example.label) > draws
    assert result.summary.counts.get("broken", 0) >= 1
    again = replay(model, tokenizer=model.tokenizer, source=result, draws=draws, progress=False)
    assert again.summary.success_rate == 1.0


def test_draws_of_a_model_that_is_not_random_are_refused(
    model: BertForSequenceClassification, tokenizer: PreTrainedTokenizerFast, single: Dataset, run: Any
) -> None:
    with pytest.raises(RunError, match="same answer each time: leave out --draws 5"):
        run(model, single, Pwws(), draws=5)
    with pytest.raises(RunError, match="same answer each time"):
        defended = wrap(model, tokenizer, "corrected", texts=["good film"])
        attack(defended, defended.tokenizer, single, Typos(), draws=5, progress=False)
