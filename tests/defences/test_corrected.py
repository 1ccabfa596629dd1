"""What is repaired, and what is left alone."""

from random import Random

import pytest
from rapidfuzz.distance import OSA

from rosewood.defences.corrected import Corrected, Correcting
from rosewood.errors import RunError
from rosewood.models.defended import Material
from rosewood.models.scoring import Scorer
from rosewood.words.noise import NOISES, drop, insert, neighbour_key, neighbours, swap
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
        ("frend about frindship", "friend about friendship"),
        ("a wonderf0l one", "a wonderf0l one"),  # wonderfol is not a word
        ("a terrib1e and wonderfu1 fi1m", "a terrible and wonderful film"),  # a digit in place of a letter
        ("a gre@t film, @ home", "a great film, @ home"),
        ("the fi lm is g ood", "the film is good"),  # a space too many
        ("a film-lover and friendshp-film", "a film-lover and friendship-film"),  # parts of a word
        ("at 10am in 1990, flm 2", "at 10am in 1990, film 2"),  # digits stay
        ("xyzwv qzxk", "xyzwv qzxk"),  # nothing near
    ],
)
def test_typing_is_repaired(typed: str, meant: str) -> None:
    assert correcting().read(typed) == meant


def test_texts_like_those_of_training_stay_as_they_are() -> None:
    shield = correcting()
    for text in TEXTS:
        assert shield.read(text) == text
    assert correcting(spelling=False).read("A w\u043enderfull  film") == "A wonderfull  film"


def test_letters_of_other_scripts_stay_where_the_training_texts_have_them() -> None:
    base = Scorer(tiny_classifier().eval(), tiny_tokenizer(), 64)
    defence = Corrected(language="none")
    shield = defence.start(defence.learn(base, Material([("\u0445\u043e\u0440\u043e\u0448\u043e",)])))
    assert isinstance(shield, Correcting)
    assert shield.read("\u0445\u043e\u0440\u043e\u0448\u043e") == "\u0445\u043e\u0440\u043e\u0448\u043e"


@pytest.mark.parametrize("noise", ["homoglyphs"])
def test_the_noise_of_evaluations_is_undone(noise: str) -> None:
    shield = correcting()
    for seed in range(20):
        noisy = NOISES[noise](TEXTS[1], 1.0, Random(seed))
        assert shield.read(noisy) == TEXTS[1]


COUNTS = {
    "good": 41,
    "god": 5,
    "goods": 3,
    "food": 12,
    "wood": 2,
    "bad": 31,
    "band": 7,
    "bed": 1,
    "bald": 2,
    "film": 50,
}


def slow_channel(word: str, likelier: float) -> str:
    """The best word of COUNTS by brute force: its share, over the price of what typing it wrongly takes."""
    total = sum(COUNTS.values())
    best, score = word, COUNTS.get(word, 0) / total or 1e-12
    for other, count in sorted(COUNTS.items()):
        if other == word or OSA.distance(word, other) > 1:
            continue
        price = likelier * (30 if other[0] != word[0] else 1)
        if len(other) == len(word):
            pairs = [(a, b) for a, b in zip(word, other, strict=True) if a != b]
            if len(pairs) == 1 and pairs[0][0] not in neighbours(pairs[0][1]):
                price *= 30
        if count / total / price > score:
            best, score = other, count / total / price
    return best


@pytest.mark.parametrize("likelier", [1.5, 8.0, 500.0])
def test_words_are_corrected_like_by_brute_force(likelier: float) -> None:
    texts = [" ".join([word] * count) for word, count in COUNTS.items()]
    defence = Corrected(language="none", likelier=likelier)
    base = Scorer(tiny_classifier().eval(), tiny_tokenizer(), 64)
    shield = defence.start(defence.learn(base, Material([(text,) for text in texts])))
    assert isinstance(shield, Correcting)
    rng = Random(0)
    slips = (swap, drop, insert, neighbour_key)
    typed = {rng.choice(slips)(rng.choice(list(COUNTS)), rng, rng.randrange(2)) for _ in range(400)}
    typed = {word for word in typed if len(word) >= 3} | set(COUNTS)
    assert len(typed) > 80
    for word in typed:
        assert shield.read(f"a {word}") == f"a {slow_channel(word, likelier)}"
    assert any(slow_channel(word, likelier) != word for word in typed)


def test_the_dictionary_is_of_the_language_of_the_texts() -> None:
    base = Scorer(tiny_classifier().eval(), tiny_tokenizer(), 64)
    for texts, language in [
        (["Der Film ist sehr gut, und die Schauspieler sind wunderbar."], "de"),
        (["The film is very good, and the actors are wonderful."], "en"),
        (["qwxz vbnmp lkjhg zzxcv"], "none"),
    ]:
        assert Corrected().learn(base, Material([(text,) for text in texts]))["language"] == language
    with pytest.raises(RunError, match="no dictionary for 'klingon'"):
        Corrected(language="klingon")
