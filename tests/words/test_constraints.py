"""Constraints keep what fits its place in the original text, and are applied in a row."""

from collections.abc import Sequence

import numpy as np

from rosewood.words.constraints import (
    Fluent,
    SameMeaning,
    SamePartOfSpeech,
    Substituting,
    Surface,
    around,
    without_stop_words,
)
from rosewood.words.lexicon import Lexicon


class Fixed:
    """A language model of known words whose log-probabilities add up."""

    def __init__(self) -> None:
        self.known = {"a": -1.0, "b": -3.0, "c": -9.0, "d": -6.0}

    def __contains__(self, word: str) -> bool:
        return word in self.known

    def logp(self, words: Sequence[str]) -> float:
        assert all(word in self.known for word in words) and len(words) <= 5
        return sum(self.known[word] for word in words)


def test_the_language_model_window() -> None:
    surface = [("b", "c", "d", "zzz")] * 4 + [("a", "zzz")]
    words = ("a", "A", "b", "zz", "zz")
    # a -> d loses 5 and stays, a -> c loses 8; unknown words fail as substitutes and let all others pass as originals.
    assert Fluent(Fixed(), window=2, min_log_ratio=-5)(words, surface) == [
        ("b", "d"),
        ("b", "d"),
        ("b", "d"),
        ("b", "c", "d"),
        ("a",),
    ]


def test_the_window_is_looked_at_once_in_the_original() -> None:
    seen = []

    class Listening:
        def __contains__(self, word: str) -> bool:
            return True

        def logp(self, words: Sequence[str]) -> float:
            seen.append(tuple(words))
            return 0.0

    Fluent(Listening(), window=2)(tuple("abcdefg"), [(), (), (), ("x",), (), (), ()])
    assert seen == [tuple("bcxef"), tuple("bcdef")]


def test_part_of_speech_is_that_of_the_word_in_its_place() -> None:
    def tagger(words: Sequence[str]) -> list[str]:
        return ["N" if word[0] in "abc" and i != 1 else "V" for i, word in enumerate(words)]

    surface = [("b", "x"), ("b", "x"), ("c", "y")]
    assert SamePartOfSpeech(tagger)(("a", "a", "z"), surface) == [("b",), ("b", "x"), ("y",)]


def test_meaning_is_compared_in_a_window_of_the_original() -> None:
    seen: list[list[str]] = []

    def encoder(texts: Sequence[str]) -> np.ndarray:
        seen.append(list(texts))
        return np.array([[5.0, 3.0 * ("near" in text) + 20.0 * ("far" in text)] for text in texts])

    surface: Surface = [(), (), (), (), ("near", "far")]
    assert SameMeaning(encoder, min_similarity=0.8, window=3)(tuple("abcde"), surface) == [(), (), (), (), ("near",)]
    assert seen == [["c d e", "c d near", "c d far"]]
    assert SameMeaning(encoder, min_similarity=0.9)(tuple("ab"), [("near",), ()]) == [(), ()]  # cosine 0.857
    assert seen[1] == ["a b", "near b"]


def test_a_window_is_as_long_in_the_corners() -> None:
    assert [list(range(9))[around(at, 9, 4)] for at in (0, 4, 8)] == [[0, 1, 2, 3], [2, 3, 4, 5], [5, 6, 7, 8]]
    assert list("ab")[around(1, 2, 15)] == ["a", "b"]


def test_constraints_see_the_words_as_written_and_the_lexicon_as_it_is() -> None:
    seen = []

    def first_only(words: Sequence[str], surface: Surface) -> Surface:
        seen.append((tuple(words), list(surface)))
        return [found[:1] for found in surface]

    lexicon = Lexicon.of({"the": ["a"], "film": ["movie", "picture"], "us": ["US", "we"]})
    words = ("The", "FILM", "us", "US")
    cased = Substituting(lexicon, constraints=[without_stop_words, first_only]).surface(words)
    assert seen == [(words, [(), ("movie", "picture"), (), ()])] and cased == [(), ("MOVIE",), (), ()]
    assert Substituting(lexicon).surface(words) == [("A",), ("MOVIE", "PICTURE"), ("US", "we"), ("WE",)]
    assert Substituting(lexicon, exact_case=True).surface(words) == [(), (), ("US", "we"), ()]
