"""Which attacks and lexicons a page offers, and that it offers nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from rosewood.errors import AbsentError, DataError
from rosewood.lab.playground.served_runs import AttackChoices
from rosewood.words.language_models import SentenceEncoder
from rosewood.words.lexicon import COUNTER_FITTED, Lexicon
from tiny_playground import tiny_task, write_lexicon


@pytest.fixture(autouse=True)
def no_data_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROSEWOOD_DATA", raising=False)


def test_attacks_that_need_training_texts_are_not_offered() -> None:
    offered = set(AttackChoices(tiny_task(), None).attacks)
    assert {"imperceptible", "pwws", "textbugger", "textfooler", "typos"} <= offered
    assert "genetic" not in offered


def test_the_first_lexicon_is_the_one_that_was_named_or_is_at_hand(tmp_path: Path) -> None:
    assert AttackChoices(tiny_task(), None).lexicon == "roget"
    words = write_lexicon(tmp_path)
    named = AttackChoices(tiny_task(), None, str(words))
    assert named.lexicons == [str(words), "counter-fitted", "wordnet", "roget"] and named.lexicon == str(words)
    published = tmp_path / COUNTER_FITTED
    published.parent.mkdir()
    published.write_text(words.read_text())
    in_folder = AttackChoices(tiny_task(), tmp_path)
    assert in_folder.lexicons == ["counter-fitted", "wordnet", "roget"]
    assert in_folder.take("pwws", "counter-fitted")[1].lexicon == Lexicon.counter_fitted(tmp_path)


def test_what_an_attack_needs_is_kept(tmp_path: Path) -> None:
    choices = AttackChoices(tiny_task(), None, str(write_lexicon(tmp_path)))
    attack, resources = choices.take("pwws", choices.lexicon)
    assert attack.name == "pwws" and resources.lexicon is not None
    assert choices.take("pwws", choices.lexicon)[1] is resources
    assert choices.take("typos", choices.lexicon)[1].lexicon is None


def test_a_missing_lexicon_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(AbsentError, match=r"wordsub/counterfitted_neighbors\.json of the data folder: name the folder"):
        AttackChoices(tiny_task(), None).take("pwws", "counter-fitted")

    def absent(*_: object) -> SentenceEncoder:
        raise AbsentError("pip install rosewood[demo]")

    monkeypatch.setattr(SentenceEncoder, "load", absent)
    choices = AttackChoices(tiny_task(), None, str(write_lexicon(tmp_path)))
    with pytest.raises(AbsentError, match=r"rosewood\[demo\]"):
        choices.take("textfooler", choices.lexicon)


def test_a_browser_cannot_name_files_or_other_attacks(tmp_path: Path) -> None:
    choices, file = AttackChoices(tiny_task(), None), write_lexicon(tmp_path)
    with pytest.raises(DataError, match=r"^There is no .*words\.json' here: known: counter-fitted, roget, wordnet"):
        choices.take("pwws", str(file))
    with pytest.raises(
        DataError, match=r"^There is no 'genetic' here: .*[Kk]nown: .*pwws, textbugger, textfooler, typos"
    ):
        choices.take("genetic", "roget")
