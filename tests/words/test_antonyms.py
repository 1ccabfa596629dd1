"""Antonym files are two words per line; lexicons can do without their pairs."""

from pathlib import Path

import pytest

from rosewood.errors import DataError
from rosewood.words.lexicon import Lexicon, antonyms


def write(folder: Path, name: str, text: str) -> None:
    (folder / "wordsub").mkdir(exist_ok=True)
    (folder / "wordsub" / name).write_text(text, encoding="utf-8")


def test_all_antonym_files_of_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "a_antonyms.txt", "good bad \nbad good\n\n")
    write(tmp_path, "b_antonyms.txt", "old young\n")
    write(tmp_path, "synonyms.txt", "old ancient\n")
    assert antonyms(tmp_path) == {frozenset({"good", "bad"}), frozenset({"old", "young"})}
    assert antonyms() == frozenset()
    monkeypatch.setenv("ROSEWOOD_DATA", str(tmp_path))
    assert len(antonyms()) == 2


def test_a_bad_line(tmp_path: Path) -> None:
    write(tmp_path, "a_antonyms.txt", "good bad\ngood\n")
    with pytest.raises(DataError, match=r"a_antonyms.txt, line 2: expected two words, got 'good'"):
        antonyms(tmp_path)


def test_a_lexicon_without_pairs() -> None:
    lexicon = Lexicon.of({"good": ["fine", "bad"], "bad": ["good"], "old": ["ancient"]}, name="some")
    less = lexicon.without({frozenset({"good", "bad"})})
    assert dict(less.entries) == {"good": ("fine",), "bad": (), "old": ("ancient",)}
    assert (less.name, less.left_out, lexicon.left_out) == ("some", 2, 0)
    assert less.fingerprint != lexicon.fingerprint == lexicon.without(()).fingerprint
    assert sorted(map(sorted, lexicon.pairs())) == [
        ["ancient", "old"],
        ["bad", "good"],
        ["bad", "good"],
        ["fine", "good"],
    ]
