"""Slopes are derivatives: on every architecture, for one text and for pairs, with words of one token and of several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import nn
from transformers import BertForSequenceClassification, PreTrainedTokenizerFast

from architectures import ARCHITECTURES, EOS
from rosewood.attacks.gradient import Gradient
from rosewood.attacks.pwws import Pwws
from rosewood.attacks.runner.api import attack
from rosewood.attacks.runner.cases import OneLabel
from rosewood.attacks.runner.scores import CLEAN_VALUE
from rosewood.attacks.runner.search import Search, Target, slopes
from rosewood.attacks.runner.slopes import Edit, Point, Slopes
from rosewood.errors import RunError
from rosewood.models.scoring import Scorer, is_for_tokens
from rosewood.models.sites import Site, word_embedding
from rosewood.results import AttackResult
from rosewood.words.lexicon import Lexicon
from rosewood.words.text import Words
from tiny import VOCABULARY
from tiny_attack import ENTRIES, sentences

Run = Callable[..., AttackResult]
CLASSIFIERS = [each for each in ARCHITECTURES if each.__name__ != "t5_encoder"]  # that one labels tokens
LETTERS = "abcdefghijklmno"


def spelling(side: str = "right") -> PreTrainedTokenizerFast:
    """A token for each letter, an end token, and padding on one side: what every one of the architectures can read."""
    pieces = {"<pad>": 0, "<unk>": 1, "</s>": EOS, **{letter: 3 + i for i, letter in enumerate(LETTERS)}}
    assert len(pieces) <= VOCABULARY
    backend = Tokenizer(models.WordLevel(pieces, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split("", "isolated")]
    )
    backend.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", EOS)])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_max_length=32,
        pad_token="<pad>",
        unk_token="<unk>",
        eos_token="</s>",
        padding_side=side,
        model_input_names=["input_ids", "attention_mask"],
    )


def point(text: str, edits: Sequence[Edit], label: int = 0) -> Point:
    words = Words.split(text)
    return Point((text,), 0, words.words, words.spans(), OneLabel(label), edits)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("build", CLASSIFIERS, ids=lambda build: build.__name__)
def test_a_slope_is_the_change_of_the_margin_per_step_towards_the_substitute(
    build: Callable[[], nn.Module], side: str
) -> None:
    torch.manual_seed(0)
    model = build().double().eval()
    model.config.pad_token_id = 0
    scorer = Scorer(model, spelling(side), 24, batch_size=4)  # type: ignore[arg-type]
    edits = [Edit(1, "ji"), Edit(1, "ab"), Edit(2, "e")]
    points = [point("abc de f", edits, 1), point("abcdef gh ij klm", edits)]
    ((numbers, found),) = Slopes(scorer, [0, 1]).batches(points)
    one = found[numbers.index(0)]
    batch = scorer.tokenizer(["abc de f", "abcdef gh ij klm"], padding=True, return_tensors="pt")
    vectors = word_embedding(model)
    ids = batch["input_ids"][0]
    shift = int((ids == 0).sum()) if side == "left" else 0
    letters = {letter: 3 + i for i, letter in enumerate(LETTERS)}
    for edit, slope in zip(edits, one.slopes, strict=True):
        places = [shift + place for place in {1: [3, 4], 2: [5]}[edit.at]]
        new = torch.tensor([letters[letter] for letter in edit.word])
        towards = vectors(new) - vectors(ids[places])

        def margin(step: float, places: list[int] = places, towards: torch.Tensor = towards) -> float:
            def moved(hidden: torch.Tensor) -> torch.Tensor:
                hidden = hidden.clone()
                hidden[0, places] += step * towards
                return hidden

            with torch.no_grad(), Site("words", model).changed(moved):
                logits = model(**batch).logits[0]
            return float(logits[1] - logits[0])

        # A step that is not too small: the norms of T5 and Llama compute in float32 whatever the model has.
        assert slope == pytest.approx((margin(1e-3) - margin(-1e-3)) / 2e-3, rel=0.01, abs=0.01 * abs(one.slopes).max())
    with torch.no_grad():
        assert one.answer == pytest.approx(model(**batch).logits[0].tolist(), abs=1e-5)


@pytest.mark.parametrize("edits", ["words", "characters"])
@pytest.mark.parametrize("build", ARCHITECTURES, ids=lambda build: build.__name__)
def test_the_attack_runs_on_every_architecture(build: Callable[[], nn.Module], edits: str) -> None:
    torch.manual_seed(0)
    model = build()
    model.config.pad_token_id = 0
    with torch.no_grad():
        for parameter in word_embedding(model).parameters():
            parameter *= 20  # so that words matter
    texts = [text[:20] for text in sentences(12)]
    data = Dataset.from_dict({"text": texts, "label": [0, 1] * 6})
    if is_for_tokens(model):  # type: ignore[arg-type]
        words = [text.split() for text in texts]
        data = Dataset.from_dict({"tokens": words, "tags": [[i % 2 for i in range(len(each))] for each in words]})
    found = attack(
        model,  # type: ignore[arg-type]
        spelling(),
        data,
        Gradient(edits=edits),  # type: ignore[arg-type]
        lexicon=Lexicon.of(ENTRIES),
        progress=False,
        batch_size=4,
    )
    assert found.summary.mean_queries > 1  # type: ignore[operator]


def test_tokens_of_pairs_and_cut_texts_are_found(
    model3: BertForSequenceClassification, tokenizer: PreTrainedTokenizerFast
) -> None:
    """The slope of a word does not depend on whether the texts around it are cut after it."""
    words = Words.split("ab cd ef")
    edits = [Edit(1, "xyz"), Edit(2, "a"), Edit(0, "")]
    long = "gh " * 40
    slopes_at = [Slopes(Scorer(model3.eval(), tokenizer, length), [0, 1, 2]) for length in (128, 127)]
    one = Point((long, "ab cd ef"), 1, words.words, words.spans(), OneLabel(2), edits)
    two = Point(("ab cd ef", long), 0, words.words, words.spans(), OneLabel(2), edits)
    for each in (one, two):
        (full, cut) = (next(iter(slopes.batches([each])))[1][0].slopes for slopes in slopes_at)
        assert np.isfinite(full).all() and (full != 0).all()
        assert cut.shape == full.shape
    beyond = Point((long + "zz",), 0, ("zz",), [(len(long), len(long) + 2)], OneLabel(0), [Edit(0, "good")])
    ((_, (found,)),) = Slopes(Scorer(model3, tokenizer, 12), [0, 1, 2]).batches([beyond])
    assert found.slopes.tolist() == [0.0]  # the model does not see it


def test_a_backward_counts_as_two(model: BertForSequenceClassification, single: Dataset, run: Run) -> None:
    class Once(Gradient):
        def search(self, target: Target) -> Search:
            scores = yield slopes([target.words], [[Edit(0, "film"), Edit(1, "good")]])
            assert scores.values[0] == pytest.approx(CLEAN_VALUE) and len(scores.slopes[0]) == 2

    examples = run(model, single, Once()).examples
    assert {example.queries for example in examples if example.status != "wrong"} == {3}
    assert {example.status for example in run(model, single, Once(), max_queries=2).examples} == {
        "wrong",
        "out_of_queries",
    }


def test_a_wider_beam_breaks_no_fewer_and_no_trim_is_no_weaker(
    model: BertForSequenceClassification, single: Dataset, run: Run
) -> None:
    one, wide, rough = (
        run(model, single, method) for method in (Gradient(), Gradient(beam_width=3), Gradient(trim=False))
    )
    assert wide.summary.counts["broken"] >= one.summary.counts["broken"] == rough.summary.counts["broken"] >= 10
    assert rough.summary.changed_words > one.summary.changed_words  # type: ignore[operator]
    assert rough.summary.mean_queries < one.summary.mean_queries  # type: ignore[operator]


@pytest.mark.parametrize("share", [0.2, 0.5])
@pytest.mark.parametrize("width", [1, 3])
def test_no_more_words_change_than_allowed(
    share: float, width: int, model: BertForSequenceClassification, single: Dataset, run: Run
) -> None:
    method = Gradient(max_words_share=share, beam_width=width)
    for each in (method, replace(method, edits="characters")):
        broken = [example for example in run(model, single, each).examples if example.status == "broken"]
        assert broken and all(len(one.changes) <= max(1, int(share * one.words)) for one in broken)


def test_it_takes_fewer_passes_than_pwws(model: BertForSequenceClassification, single: Dataset, run: Run) -> None:
    gradient, pwws = run(model, single, Gradient()), run(model, single, Pwws())
    assert sum(e.queries for e in gradient.examples) < 0.7 * sum(e.queries for e in pwws.examples)


def test_a_tokenizer_that_cannot_say_which_tokens_a_word_has_is_refused(
    model: BertForSequenceClassification, tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PreTrainedTokenizerFast, "is_fast", False)
    with pytest.raises(RunError, match=r"needs to know the tokens of each word.*use_fast=True"):
        Slopes(Scorer(model, tokenizer), [0, 1])
