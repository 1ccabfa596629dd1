"""Lexicons of other languages, from small WN-LMF files made here."""

from pathlib import Path

import pytest

from rosewood.errors import DataError
from rosewood.words.constraints import Substituting
from rosewood.words.lexicon import Lexicon, lexicon_identity
from rosewood.words.wordnet import lmf_synonyms

pytest.importorskip("wn")
pytest.importorskip("lemminflect")

Senses = dict[str, list[str]]
"""Lemma -> its synsets, first senses first."""
FRENCH: Senses = {
    "film": ["1", "2"],
    "pellicule": ["2"],
    "long-métrage": ["1"],
    "œuvre d'art": ["1"],
    "CNRS": ["1"],
    "Hund": ["3"],
    "Köter": ["3"],
    "seul": ["4"],
}


def written(path: Path, senses: Senses, language: str = "fr") -> Path:
    entries = "".join(
        f'<LexicalEntry id="w{i}"><Lemma writtenForm="{lemma}" partOfSpeech="n"/>'
        + "".join(f'<Sense id="w{i}-{synset}" synset="s{synset}"/>' for synset in own)
        + "</LexicalEntry>"
        for i, (lemma, own) in enumerate(senses.items())
    )
    synsets = "".join(
        f'<Synset id="s{number}" ili="" partOfSpeech="n"/>'
        for number in sorted({each for own in senses.values() for each in own})
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<!DOCTYPE LexicalResource SYSTEM "http://globalwordnet.github.io/schemas/WN-LMF-1.0.dtd">\n'
        '<LexicalResource xmlns:dc="http://purl.org/dc/elements/1.1/">'
        f'<Lexicon id="omw-{language}" label="x" language="{language}" email="a@b.c" license="l" version="1">'
        f"{entries}{synsets}</Lexicon></LexicalResource>",
        encoding="utf-8",
    )
    return path.parent


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROSEWOOD_CACHE", str(tmp_path / "cache"))


def test_single_words_of_the_synsets_first_senses_first(tmp_path: Path) -> None:
    folder = written(tmp_path / "omw-fr" / "omw-fr.xml", FRENCH)
    lexicon = Lexicon.named(str(folder))
    assert dict(lexicon.entries) == {
        "film": ("long-métrage", "pellicule"),
        "pellicule": ("film",),
        "long-métrage": ("film",),
        "hund": ("köter",),
        "köter": ("hund",),
    }
    assert lexicon.known_as == str(folder) and Lexicon.named(str(folder)).fingerprint == lexicon.fingerprint


def test_words_keep_their_case_and_marks_may_stand_apart(tmp_path: Path) -> None:
    lexicon = Lexicon.named(str(written(tmp_path / "de" / "de.xml", FRENCH)))
    found = Substituting(lexicon).surface(["Hund", "HUND", "Ko\N{COMBINING DIAERESIS}ter", "Katze"])
    assert found == [("Köter",), ("KÖTER",), ("Hund",), ()]
    assert Substituting(lexicon).known(["Hund", "Katze", "Ko\N{COMBINING DIAERESIS}ter"]) == 2


def test_no_more_substitutes_than_the_others_have(tmp_path: Path) -> None:
    folder = written(tmp_path / "x" / "x.xml", {f"mot{chr(97 + i)}": ["1"] for i in range(12)})
    assert {len(found) for found in Lexicon.omw(folder).entries.values()} == {8}


def test_the_identity_is_that_of_the_files(tmp_path: Path) -> None:
    folder = written(tmp_path / "fr" / "fr.xml", FRENCH)
    before = lexicon_identity(str(folder))
    written(folder / "fr.xml", FRENCH | {"seule": ["4"]})
    assert lexicon_identity(str(folder)) != before
    assert Lexicon.omw(folder).substitutes("seul") == ("seule",)


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"empty has no WN-LMF file"):
        Lexicon.named(str(tmp_path / "empty"))
    folder = written(tmp_path / "two" / "fr.xml", FRENCH)
    written(folder / "de.xml", FRENCH, "de")
    with pytest.raises(DataError, match="has wordnets of de, fr: name the folder of one language"):
        Lexicon.named(str(folder))
    for broken in ("", "no xml", "<a/>", "<?xml version='1.0'?><LexicalResource>"):
        file = tmp_path / "bad" / "bad.xml"
        file.parent.mkdir(exist_ok=True)
        file.write_text(broken)
        with pytest.raises(DataError, match="cannot be read as a WN-LMF file"):
            lmf_synonyms(file.parent, 8)
