"""The dictionary files of WordNet are read as they are, wherever they are found."""

import os
import zipfile
from pathlib import Path

import pytest

from rosewood.errors import AbsentError, DataError
from rosewood.words import wordnet
from rosewood.words.lexicon import Lexicon
from rosewood.words.wordnet import Lemma, Synonym, english_synonyms, find_wordnet
from tiny_lexicon import Dictionary, write_wordnet


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("WNSEARCHDIR", "WNHOME", "NLTK_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ROSEWOOD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(wordnet, "DEBIAN", tmp_path / "nowhere")


def test_synonyms_by_part_of_speech_and_sense(tmp_path: Path) -> None:
    found = english_synonyms(write_wordnet(tmp_path / "dict"))
    assert found == {
        Lemma("film", "NOUN"): [Synonym(1, "movie"), Synonym(1, "flick")],  # no phrases, no names, first sense only
        Lemma("flick", "NOUN"): [Synonym(1, "movie"), Synonym(1, "film")],
        Lemma("movie", "NOUN"): [Synonym(1, "film"), Synonym(1, "flick")],
        Lemma("film", "VERB"): [Synonym(1, "shoot"), Synonym(1, "take")],
        Lemma("shoot", "VERB"): [Synonym(1, "film"), Synonym(1, "take")],
        Lemma("take", "VERB"): [Synonym(1, "film"), Synonym(1, "shoot")],
        Lemma("old", "ADJ"): [Synonym(1, "ancient")],
    }


@pytest.mark.parametrize(
    ("variable", "place"),
    [
        ("WNSEARCHDIR", "dict"),
        ("WNHOME", "dict"),
        ("NLTK_DATA", "corpora/wordnet"),
        ("HOME", "nltk_data/corpora/wordnet"),
    ],
)
def test_places(variable: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_wordnet(tmp_path / "here" / place)
    monkeypatch.setenv(variable, str(folder if variable == "WNSEARCHDIR" else tmp_path / "here"))
    assert find_wordnet() == folder


def test_a_corpus_that_nltk_left_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_wordnet(tmp_path / "wordnet")
    packed = tmp_path / "corpora" / "wordnet.zip"
    packed.parent.mkdir()
    with zipfile.ZipFile(packed, "w") as archive:
        for file in folder.iterdir():
            archive.write(file, f"wordnet/{file.name}")
    monkeypatch.setenv("NLTK_DATA", f"/nowhere{os.pathsep}{tmp_path}")
    assert english_synonyms(find_wordnet()) == english_synonyms(folder)


def test_nowhere() -> None:
    with pytest.raises(AbsentError, match="WordNet was not found: install Debian's wordnet-base or NLTK's corpus"):
        find_wordnet()


def test_half_a_wordnet(tmp_path: Path) -> None:
    (write_wordnet(tmp_path / "dict") / "data.verb").unlink()
    with pytest.raises(DataError, match=r"data.verb cannot be read as a dictionary file of WordNet"):
        english_synonyms(tmp_path / "dict")


def test_as_a_lexicon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wordnet, "_lemminflect", Dictionary)
    wordnet.forms.cache_clear()
    monkeypatch.setenv("WNSEARCHDIR", str(write_wordnet(tmp_path / "dict")))
    lexicon = Lexicon.named("wordnet")
    assert lexicon.name == "wordnet" and lexicon.substitutes("films") == ("movies",)
    assert lexicon.substitutes("film") == ("movie", "flick", "shoot", "take")


@pytest.mark.data
@pytest.mark.skipif("ROSEWOOD_DATA" not in os.environ, reason="needs ROSEWOOD_DATA")
def test_the_real_files_agree_with_a_list_made_from_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    try:
        found = english_synonyms(find_wordnet())
    except AbsentError:
        pytest.skip("needs WordNet")
    rows = (Path(os.environ["ROSEWOOD_DATA"]) / "wordsub/wordnet30_synonyms.tsv").read_text().splitlines()[1:]
    parts = {"n": "NOUN", "v": "VERB", "a": "ADJ", "r": "ADV"}
    listed = {
        (Lemma(word, parts[part]), other)
        for word, part, others in (row.split("\t") for row in rows)
        for other in others.split()
    }
    ours = {(lemma, each.word) for lemma, others in found.items() for each in others}
    assert {pair for pair in ours if "-" not in pair[0].word + pair[1]} <= listed  # the list has no hyphens
    assert len(ours & listed) > 0.94 * len(listed)  # and it has names: 7,846 of its 141,818 pairs
