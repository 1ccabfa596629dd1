"""What is repaired, and what is left alone."""

import pytest

from rosewood.defences.corrected import Corrected, Correcting
from rosewood.models.defended import Material
from rosewood.models.scoring import Scorer
from rosewood.words.noise import NOISES
from tiny_text import tiny_classifier, tiny_tokenizer

TEXTS = ["A wonderful film about friendship, and a terrible one about friends.", "The film is wonderful!"] * 2


def correcting(**settings: object) -> Correcting:
    base = Scorer(tiny_classifier().eval(), tiny_tokenizer(), 64)
    defence = Corrected(**settings)  # type: ignore[arg-type]
    shield = defence.start(defence.learn(base, Material([(text,) for text in TEXTS])))
    assert isinstance(shield, Correcting)
    shield.logits([("warm up",)], base)
    return shield


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("A wo\u200bnder\u00adful film", "A wonderful film"),  # invisible
        ("A w\u043enderful f\u0456lm", "A wonderful film"),  # Cyrillic letters
        ("A ｗonderful film", "A wonderful film"),  # full width
        ("A wonderx\x08ful film", "A wonderful film"),  # rubbed out
        ("A Wodnerful film", "A Wonderful film"),  # swapped
        ("A WONDRFUL film", "A WONDERFUL film"),  # left out
        ("a terible fillm", "a terrible film"),
        ("frend about frindship", "frend about friendship"),  # frend is 2 from friends
        ("the 2wonderful flm xyzw", "the 2wonderful flm xyzw"),  # digits, too short, nothing near
    ],
)
def test_typing_is_repaired(typed: str, meant: str) -> None:
    assert correcting().repaired(typed) == meant


def test_texts_like_those_of_training_stay_as_they_are() -> None:
    shield = correcting()
    for text in TEXTS:
        assert shield.repaired(text) == text
    assert correcting(spelling=False).repaired("A w\u043enderfull  film") == "A wonderfull  film"


def test_letters_of_other_scripts_stay_where_the_training_texts_have_them() -> None:
    base = Scorer(tiny_classifier().eval(), tiny_tokenizer(), 64)
    defence = Corrected(min_count=1)
    shield = defence.start(defence.learn(base, Material([("\u0445\u043e\u0440\u043e\u0448\u043e",)])))
    assert isinstance(shield, Correcting)
    assert shield.repaired("\u0445\u043e\u0440\u043e\u0448\u043e") == "\u0445\u043e\u0440\u043e\u0448\u043e"


@pytest.mark.parametrize("noise", ["homoglyphs"])
def test_the_noise_of_evaluations_is_undone(noise: str) -> None:
    from random import Random

    shield = correcting()
    for seed in range(20):
        noisy = NOISES[noise](TEXTS[1], 1.0, Random(seed))
        assert shield.repaired(noisy) == TEXTS[1]
