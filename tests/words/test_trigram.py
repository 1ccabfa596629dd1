"""The language model is a distribution, and knows what it was fitted on."""

import math

import pytest

from rosewood.errors import DataError
from rosewood.words.language_models import Trigram

TEXTS = ["The film is good.", "the film is bad", "a film is a film", "Good is bad", "rare"]
KNOWN = ["the", "film", "is", "good", "bad", "a"]


def test_it_knows_words_seen_twice_in_lower_case() -> None:
    model = Trigram.fit(TEXTS)
    assert all(word in model for word in KNOWN)
    assert "rare" not in model and "The" not in model


@pytest.mark.parametrize("before", [[], ["film"], ["the", "film"], ["bad", "the"], ["is", "is"], ["good", "good"]])
def test_chances_add_up_to_one(before: list[str]) -> None:
    model = Trigram.fit(TEXTS)
    assert sum(model.probability([*before, word]) for word in KNOWN) == pytest.approx(1, abs=1e-12)


def test_a_chance_by_hand() -> None:
    model = Trigram.fit(["a b", "a b", "a c", "c c"])
    # 8 words, 3 of them distinct: a 3, b 2, c 3; after a: b twice, c once.
    assert model.probability(["b"]) == pytest.approx(3 / 11)
    assert model.probability(["a", "b"]) == pytest.approx((2 - 0.75) / 3 + 0.75 * 2 / 3 * 3 / 11)
    assert model.logp(["a", "b"]) == pytest.approx(math.log(4 / 11) + math.log(model.probability(["a", "b"])))


def test_what_was_seen_is_likelier() -> None:
    model = Trigram.fit(TEXTS)
    assert model.logp(["the", "film", "is"]) > model.logp(["the", "is", "film"])


def test_too_little_text() -> None:
    with pytest.raises(DataError, match="at least 2 times; got 1 sentences of 1 words: give it more text"):
        Trigram.fit(["rare"])
