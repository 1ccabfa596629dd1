"""Smoothed models against a slow transcription, and the copies that they read."""

from collections import Counter

import numpy as np
import pytest
from scipy.special import softmax
from transformers import BertForSequenceClassification, PreTrainedTokenizerFast

from rosewood.defences.runner.copies import DeleteNoise, MaskNoise, SubstituteNoise, generator
from rosewood.defences.smoothed import Smoothed
from tiny_attack import sentences
from tiny_defences import logits, wrapped

Model, Tokenizer = BertForSequenceClassification, PreTrainedTokenizerFast
TEXT = ("one two three four five six seven eight nine ten",)


@pytest.mark.parametrize("by", ["mask", "delete", "substitute"])
@pytest.mark.parametrize("combine", ["majority", "mean"])
def test_the_answer_is_the_vote_or_the_mean_of_the_copies(
    by: str, combine: str, model: Model, tokenizer: Tokenizer
) -> None:
    settings = Smoothed(by=by, combine=combine, copies=9)  # type: ignore[arg-type]
    defended = wrapped(model, tokenizer, settings)
    for text in sentences(6):
        copies = settings.noise(defended.learnt).copies((text,), 9, generator(0, (text,)))
        own = [logits(model, tokenizer, [copy])[0] for copy in copies]
        if combine == "mean":
            expected = np.mean([softmax(each) for each in own], axis=0)
        else:
            votes = Counter(int(each.argmax()) for each in own)
            expected = np.array([(votes[label] + 0.5) / 10 for label in range(2)])
        answer = softmax(logits(defended, defended.tokenizer, [(text,)])[0])
        np.testing.assert_allclose(answer, expected, atol=1e-5)


def test_masking_keeps_the_same_number_of_words() -> None:
    noise = MaskNoise(0.3, "#")
    copies = noise.copies(TEXT, 2000, np.random.default_rng(0))
    words = [copy.split() for (copy,) in copies]
    assert {len(each) for each in words} == {10}
    assert {each.count("#") for each in words} == {3}
    often = np.mean([[word == "#" for word in each] for each in words], axis=0)
    np.testing.assert_allclose(often, 0.3, atol=0.05)
    assert noise.copies(("word",), 2, np.random.default_rng(0)) == [("word",)] * 2
    assert noise.copies(("",), 2, np.random.default_rng(0)) == [("",)] * 2


def test_deletion_leaves_words_out_on_their_own() -> None:
    copies = DeleteNoise(0.4).copies(TEXT, 4000, np.random.default_rng(0))
    often = np.mean([[word in copy.split() for word in TEXT[0].split()] for (copy,) in copies], axis=0)
    np.testing.assert_allclose(often, 0.6, atol=0.05)
    assert np.std([len(copy.split()) for (copy,) in copies]) == pytest.approx((10 * 0.4 * 0.6) ** 0.5, rel=0.1)


def test_substitution_draws_from_a_word_and_its_synonyms() -> None:
    noise = SubstituteNoise(1.0, {"good": ["fine", "nice", "top notch", "A.1"], "bad": []})
    copies = Counter(noise.copies(("Good, bad!", "good"), 3000, np.random.default_rng(0)))
    assert set(copies) == {(f"{a}, bad!", b) for a in ("Good", "Fine", "Nice") for b in ("good", "fine", "nice")}
    assert min(copies.values()) > 250
    half = Counter(SubstituteNoise(0.5, {"good": ["fine"]}).copies(("good",), 4000, np.random.default_rng(0)))
    assert half["fine",] / 4000 == pytest.approx(0.25, abs=0.03)
    assert noise.copies(("!",), 2, np.random.default_rng(0)) == [("!",)] * 2


def test_spaces_decide_nothing(model: Model, tokenizer: Tokenizer) -> None:
    noise = MaskNoise(0.5, "[UNK]")
    for copies in (noise.copies((text,), 3, np.random.default_rng(1)) for text in ("a b  c", " a\tb c\n")):
        assert copies == noise.copies(("a b c",), 3, np.random.default_rng(1))


def test_dropout_is_on_inside_only(model: Model, tokenizer: Tokenizer) -> None:
    before = logits(model, tokenizer, [TEXT])
    defended = wrapped(model, tokenizer, "smoothed:dropout", combine="mean", copies=4, share=0.5)
    once = logits(defended, defended.tokenizer, [TEXT])
    assert not np.allclose(softmax(before), softmax(once), atol=1e-4)
    np.testing.assert_array_equal(logits(model, tokenizer, [TEXT]), before)
    other = wrapped(model, tokenizer, "smoothed:dropout", combine="mean", copies=4, share=0.5, seed=1)
    assert not np.allclose(once, logits(other, other.tokenizer, [TEXT]), atol=1e-4)


def test_equal_copies_are_read_once(model: Model, tokenizer: Tokenizer) -> None:
    defended = wrapped(model, tokenizer, "smoothed:mask", copies=40)
    read = 0

    def count(module: object, args: object, kwargs: dict[str, np.ndarray]) -> None:
        nonlocal read
        read += len(kwargs["input_ids"])

    model.register_forward_pre_hook(count, with_kwargs=True)
    logits(defended, defended.tokenizer, [("a b c",)])
    assert read == 3  # one of three words is masked
