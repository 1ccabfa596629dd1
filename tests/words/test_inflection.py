"""Substitutes come in the form of the word, best first, and only forms that a dictionary knows."""

import pytest

from rosewood.errors import AbsentError
from rosewood.words import wordnet
from rosewood.words.wordnet import Lemma, Synonym, inflected
from tiny_lexicon import Dictionary


@pytest.fixture(autouse=True)
def dictionary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wordnet, "_lemminflect", Dictionary)
    wordnet.forms.cache_clear()


def test_each_form_gets_the_same_form_of_the_others() -> None:
    found = inflected({Lemma("film", "NOUN"): [Synonym(2, "flick"), Synonym(1, "movie")]}, limit=8)
    assert found == {"film": ["movie", "flick"], "films": ["movies"]}  # nobody knows the plural of flick


def test_parts_of_speech_are_merged_by_rank_and_cut() -> None:
    synonyms = {
        Lemma("film", "VERB"): [Synonym(1, "shoot"), Synonym(3, "take")],
        Lemma("film", "NOUN"): [Synonym(2, "movie")],
    }
    assert inflected(synonyms, limit=8)["film"] == ["shoot", "movie", "take"]
    assert inflected(synonyms, limit=2)["film"] == ["shoot", "movie"]
    assert inflected(synonyms, limit=8)["filmed"] == ["shot"]


def test_every_spelling_is_looked_up_and_the_first_is_given() -> None:
    assert inflected({Lemma("learn", "VERB"): [Synonym(1, "shoot")]}, 8)["learnt"] == ["shot"]
    assert inflected({Lemma("shoot", "VERB"): [Synonym(1, "learn")]}, 8)["shot"] == ["learned"]


def test_a_form_like_the_base_form_is_the_base_form() -> None:
    # The plural "sheep", and a past "put", would bring plurals and pasts to every base form.
    assert inflected({Lemma("sheep", "NOUN"): [Synonym(1, "film")]}, 8) == {"sheep": ["film"]}


def test_nothing_stands_in_for_itself_and_phrases_stay_out() -> None:
    assert inflected({Lemma("film", "NOUN"): [Synonym(1, "sheep"), Synonym(2, "film")]}, 8)["film"] == ["sheep"]
    assert inflected({Lemma("film", "NOUN"): [Synonym(1, "flatfoot")]}, 8) == {"film": ["flatfoot"]}  # "flat feet"


def test_without_lemminflect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    wordnet._lemminflect.cache_clear()
    wordnet.forms.cache_clear()
    monkeypatch.setitem(__import__("sys").modules, "lemminflect", None)
    with pytest.raises(AbsentError, match=r"lemminflect is not installed: pip install rosewood\[lexicon\]"):
        inflected({Lemma("film", "NOUN"): [Synonym(1, "movie")]}, 8)


def test_the_real_dictionary(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("lemminflect")
    monkeypatch.undo()
    wordnet.forms.cache_clear()
    found = inflected({Lemma("movie", "NOUN"): [Synonym(1, "film")], Lemma("good", "ADJ"): [Synonym(1, "nice")]}, 8)
    assert found["movies"] == ["films"] and found["better"] == ["nicer"]
