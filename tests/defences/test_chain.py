"""A chain answers as its parts do, one after the other."""

import numpy as np
import pytest
from transformers import BertForSequenceClassification, PreTrainedTokenizerFast

from rosewood.defences.chain import Chain
from rosewood.defences.corrected import Corrected
from rosewood.defences.encoded import Encoded
from rosewood.defences.runner.wrap import choose_defence, title_of
from rosewood.defences.smoothed import Smoothed
from rosewood.errors import RecipeError, RunError
from rosewood.models.defended import FrontEnd
from tiny_attack import sentences
from tiny_defences import logits, wrapped

ROWS = [(text,) for text in sentences(12, seed=9)]


def test_the_last_part_answers_for_what_the_others_write(
    model: BertForSequenceClassification, tokenizer: PreTrainedTokenizerFast
) -> None:
    chain = wrapped(model, tokenizer, "corrected+encoded+smoothed:delete", copies=4, language="none")
    corrected, encoded, smoothed = (
        part.start(own) for part, own in zip(chain.defence.of, chain.learnt["parts"], strict=True)
    )
    assert isinstance(corrected, FrontEnd) and isinstance(encoded, FrontEnd)
    written = [(encoded.read(corrected.read(text)),) for (text,) in ROWS]
    assert written != ROWS
    expected = smoothed.logits(written, chain.base(64))
    np.testing.assert_allclose(logits(chain, chain.tokenizer, ROWS), expected, atol=1e-5)
    assert chain.defence.forwards() == 4


def test_a_part_learns_from_what_the_parts_before_it_write(
    model: BertForSequenceClassification, tokenizer: PreTrainedTokenizerFast
) -> None:
    chain = wrapped(model, tokenizer, "encoded+corrected", language="none")
    encoded, corrected = chain.learnt["parts"]
    assert encoded["codes"] and not encoded["codes"].keys() & corrected["words"].keys()


def test_a_chain_goes_round_through_its_settings() -> None:
    chain = choose_defence("corrected+encoded", {"stop_words": False, "spelling": False})
    assert chain == Chain((Corrected(spelling=False), Encoded(stop_words=False)))
    assert Chain(**chain.settings()) == chain
    assert title_of(chain) == "corrected+encoded"


def test_only_parts_that_draw_are_drawn_again() -> None:
    still, drawing = Chain(), Chain((Encoded(), Smoothed()))
    assert still.redrawn(1, 2) is still
    assert drawing.redrawn(1, 2) == Chain((Encoded(), Smoothed().redrawn(1, 2))) != drawing


def test_mistakes_are_named(model: BertForSequenceClassification, tokenizer: PreTrainedTokenizerFast) -> None:
    with pytest.raises(RecipeError, match="no part of corrected\\+encoded has a setting 'copies'"):
        choose_defence("corrected+encoded", {"copies": 3})
    with pytest.raises(RecipeError, match="did you mean encoded"):
        choose_defence("corrected+encode")
    with pytest.raises(RunError, match=r"smoothed writes no text.*put it last"):
        wrapped(model, tokenizer, "smoothed:delete+encoded")
