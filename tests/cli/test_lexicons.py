"""rosewood list lexicons, as a person would type it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from cli.conftest import Rosewood
from rosewood.errors import AbsentError
from rosewood.words.lexicon import COUNTER_FITTED, Lexicon


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with neighbours and antonyms, a thesaurus that offers one of them, and no WordNet."""

    def absent(_: Path) -> Lexicon:
        raise AbsentError("WordNet was not found: install it")

    (tmp_path / "wordsub").mkdir()
    (tmp_path / COUNTER_FITTED).write_text(json.dumps({"good": ["fine", "nice"], "film": ["movie"], "a": []}))
    (tmp_path / "wordsub" / "antonyms.txt").write_text("good bad\n")
    roget = Lexicon.of({"good": ["fine", "bad"], "bad": ["good", "poor"]}, "roget").without(
        {frozenset(("good", "bad"))}
    )
    monkeypatch.setattr(
        "rosewood.words.lexicon._BY_NAME",
        {"counter-fitted": Lexicon.counter_fitted, "wordnet": absent, "roget": lambda _: roget},
    )
    return tmp_path


def row(printed: str, name: str) -> list[str]:
    line = next(line for line in printed.splitlines() if name in line)
    return [cell.strip() for cell in line.split("│")[1:-1]]


def test_sizes_and_antonyms(rosewood: Rosewood, folder: Path) -> None:
    printed = rosewood("list", "lexicons", "--data-dir", folder)
    assert row(printed, "counter-fitted") == ["counter-fitted", "2", "3", "0 (0.00%)"]
    assert row(printed, "roget") == ["roget", "2", "2", "2 (50.00%)"]
    assert "wordnet is not available: WordNet was not found: install it" in printed


def test_without_antonym_files_there_is_no_share(rosewood: Rosewood, folder: Path) -> None:
    printed = rosewood("list", "lexicons", folder / COUNTER_FITTED)
    assert printed.count("│") == 5 and row(printed, "counterfitted")[1:] == ["2", "3", "-"]


def test_the_attack_space_of_a_task(rosewood: Rosewood, folder: Path) -> None:
    (folder / "test.csv").write_text("first,second,label\nA film,A good Film,0\nA good film,no,1\n")
    task = {
        "name": "pairs",
        "title": "Pairs",
        "text": ["first", "second"],
        "labels": ["0", "1"],
        "splits": {"test": {"folder": {"file": "test.csv"}}, "train": {"folder": {"file": "test.csv"}}},
    }
    (folder / "task.yaml").write_text(yaml.safe_dump(task))
    words = ("list", "lexicons", "counter-fitted", "--data-dir", folder, "--task", folder / "task.yaml")
    assert row(rosewood(*words), "counter-fitted")[4:] == ["1.0", "2.50", "2.45^1.0"]  # good and Film: 3 and 2 choices
    assert row(rosewood(*words, "--exact-case"), "counter-fitted")[4:] == ["0.5", "3.00", "3.00^0.5"]
    assert row(rosewood(*words, "--max-words", 2), "counter-fitted")[4:] == ["0.5", "3.00", "3.00^0.5"]
    assert row(rosewood(*words, "--field", "first"), "counter-fitted")[4:] == ["1.5", "2.33", "2.29^1.5"]
    assert "has no text 'third': " in rosewood(*words, "--field", "third", code=1)
