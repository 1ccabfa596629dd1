"""Lexicons are read once, checked whole, and known by their contents."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from rosewood.errors import DataError
from rosewood.words.lexicon import COUNTER_FITTED, Lexicon


def test_lookup() -> None:
    lexicon = Lexicon.of({"good": ["fine", "nice", "good", "fine"], "bad": []})
    assert lexicon.substitutes("good") == ("fine", "nice")
    assert lexicon.substitutes("bad") == lexicon.substitutes("Good") == ()


def test_the_fingerprint_is_that_of_the_contents() -> None:
    one = Lexicon.of({"a": ["b"], "c": ["d", "e"]})
    assert one.fingerprint == Lexicon.of({"c": ["d", "e"], "a": ["b"], "x": []}, name="other").fingerprint
    assert one.fingerprint != Lexicon.of({"a": ["b"], "c": ["e", "d"]}).fingerprint


def test_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "words.json"
    path.write_text(json.dumps({"good": ["fine"]}))
    assert Lexicon.load(path).substitutes("good") == ("fine",)
    assert Lexicon.load(path).known_as == str(path)


def test_what_was_made_in_python_has_no_name_to_call_it_by(tmp_path: Path) -> None:
    assert Lexicon.of({"good": ["fine"]}).known_as is None
    path = tmp_path / COUNTER_FITTED
    path.parent.mkdir()
    path.write_text(json.dumps({"good": ["fine"]}))
    assert Lexicon.named(None, tmp_path).known_as == "counter-fitted"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "words.json cannot be read as JSON"),
        ("[1]", "expected word -> list of substitutes, got list"),
        ('{"good": "fine"}', "entry 'good': expected a word and a list of substitutes, got 'fine'"),
        ('{"": ["fine"]}', "entry '': expected a word and a list"),
        ('{"good": [1]}', "entry 'good': a substitute must be a single word, got 1"),
        ('{"good": ["very fine"]}', "entry 'good': a substitute must be a single word, got 'very fine'"),
        ('{"good": [""]}', "entry 'good': a substitute must be a single word, got ''"),
    ],
)
def test_bad_files(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "words.json"
    path.write_text(content)
    with pytest.raises(DataError, match=message):
        Lexicon.load(path)


def test_absent_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=r"counterfitted_neighbors.json: no such file"):
        Lexicon.counter_fitted(tmp_path)
    monkeypatch.delenv("ROSEWOOD_DATA", raising=False)
    with pytest.raises(DataError, match="name the folder with --data-dir or ROSEWOOD_DATA"):
        Lexicon.counter_fitted()


@pytest.mark.data
@pytest.mark.skipif("ROSEWOOD_DATA" not in os.environ, reason="needs ROSEWOOD_DATA")
def test_the_published_neighbours() -> None:
    entries: dict[str, Any] = dict(Lexicon.counter_fitted().entries)
    assert len(entries) == 49975
    assert sum(1 for found in entries.values() if found) == 25591
    assert sum(map(len, entries.values())) == 109104 and max(map(len, entries.values())) == 8


def test_by_name(tmp_path: Path) -> None:
    path = tmp_path / COUNTER_FITTED
    path.parent.mkdir()
    path.write_text(json.dumps({"good": ["fine"]}))
    assert (
        Lexicon.named("counter-fitted", tmp_path) == Lexicon.named(None, tmp_path) == Lexicon.named(data_dir=tmp_path)
    )
    assert Lexicon.named(str(path)).entries == Lexicon.named(None, tmp_path).entries
    assert Lexicon.named(data_dir=tmp_path).name == "counter-fitted" and Lexicon.named(str(path)).name == str(path)


def test_unknown_names() -> None:
    message = r"unknown lexicon 'rogets': did you mean roget or wordnet\? Known: counter-fitted, roget, wordnet"
    with pytest.raises(DataError, match=message):
        Lexicon.named("rogets")
    with pytest.raises(DataError, match=r"words.json: no such file"):
        Lexicon.named("words.json")
