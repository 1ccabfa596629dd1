"""Records of edits, and the accuracy over those that pass a filter, against the records in examples.jsonl alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import Dataset
from test_attack_constraints import Counting, letters
from test_attack_table import printed, render
from test_engine import ATTACKS
from transformers import BertForSequenceClassification

from rosewood.attacks.pwws import Pwws
from rosewood.attacks.runner import api, job
from rosewood.attacks.runner.attack import Attack
from rosewood.attacks.runner.constraints import in_words
from rosewood.attacks.runner.report import FAILED, edits_caption, warning_of
from rosewood.config.attack_options import MeaningFilter
from rosewood.config.settings import AttackSettings
from rosewood.errors import RunError
from rosewood.results import AttackReport, AttackResult
from tiny_attack import ENTRIES

Run = Callable[..., AttackResult]
ANTONYMS = {frozenset((word, found[0])) for word, found in list(ENTRIES.items())[::2]}
GIVEN: dict[str, Any] = {"encoder": letters, "causal_lm": Counting()}


@pytest.fixture(autouse=True)
def known_antonyms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "antonyms", lambda *_: frozenset(ANTONYMS))


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "examples.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("method", list(ATTACKS.values()), ids=list(ATTACKS))
def test_every_broken_example_has_a_record_of_its_edit(
    method: Attack, model: BertForSequenceClassification, single: Dataset, run: Run, tmp_path: Path
) -> None:
    run(model, single, method, folder=tmp_path, **GIVEN)
    seen = 0
    for line in lines(tmp_path):
        record = [line[name] for name in ("words_share", "similarity", "perplexity_ratio", "antonyms")]
        if line["status"] != "broken":
            assert record == [None] * 4
            continue
        before, after = line["texts"]["text"], line["adversarial"]
        one, two = letters([before, after])
        pairs = [
            [each["before"], new]
            for each in line["changes"]
            for new in each["after"].split()
            if {each["before"], new} in ANTONYMS
        ]
        assert record[:3] == pytest.approx(
            [
                len(line["changes"]) / line["words"],
                one @ two / np.sqrt((one @ one) * (two @ two)),
                np.exp((len(set(after)) - len(set(before))) / 4),
            ]
        )
        assert record[3] == pairs
        seen += bool(pairs)
    assert seen or "lexicon" not in method.needs()


FILTERS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "words=0.2": lambda line: line["words_share"] <= 0.2,
    "similarity=0.9": lambda line: line["similarity"] >= 0.9,
    "fluency=1.2": lambda line: line["perplexity_ratio"] <= 1.2,
    "antonyms=no": lambda line: not line["antonyms"],
}


def test_an_edit_that_fails_the_filter_breaks_nothing(
    model: BertForSequenceClassification, single: Dataset, run: Run, tmp_path: Path
) -> None:
    for text in (*FILTERS, ",".join(FILTERS)):
        folder = tmp_path / text
        result = run(model, single, Pwws(), folder=folder, meaning_filter=text, **GIVEN)
        found = result.summary.filtered
        assert found is not None and str(found.conditions) == text and found.unknown == []
        kept = [name for name in FILTERS if name in text.split(",")]
        broken = [line for line in lines(folder) if line["status"] == "broken"]
        passing = [line for line in broken if all(FILTERS[name](line) for name in kept)]
        robust = sum(line["status"] == "robust" for line in lines(folder))
        assert 0 < len(passing) < len(broken), "the filter splits them"
        assert found.passed == len(passing)
        assert found.robust_accuracy == (robust + len(broken) - len(passing)) / len(single)
        for name in kept:
            assert found.failed[name.partition("=")[0]] == sum(not FILTERS[name](line) for line in broken)
        assert result.summary.robust_accuracy < found.robust_accuracy <= result.summary.clean_accuracy
        low, high = found.robust_interval
        assert low < found.robust_accuracy < high
        told = str(edits_caption(result))
        others = [f"{found.failed[name.partition('=')[0]]} {FAILED[name.partition('=')[0]]}" for name in kept]
        assert told.startswith(f"{len(passing)} of {len(broken)} edits pass the filter {text}. Of the others, ")
        assert all(each in told for each in others)


def test_a_filter_is_judged_again_without_a_search(
    model: BertForSequenceClassification, single: Dataset, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run(model, single, Pwws(), folder=tmp_path, **GIVEN)
    texts = (tmp_path / "examples.jsonl").read_bytes()
    monkeypatch.setattr(job, "run", None)  # nothing can be asked
    again = run(model, single, Pwws(), folder=tmp_path, meaning_filter="words=0.2", **GIVEN)
    assert first.fingerprint == again.fingerprint and first.summary.filtered != again.summary.filtered
    stored = AttackReport.load(tmp_path / "attack.json")
    assert stored.summary == again.summary and stored.meaning_filter == MeaningFilter(words=0.2)
    assert (tmp_path / "examples.jsonl").read_bytes() == texts
    without = run(model, single, Pwws(), folder=tmp_path, meaning_filter="none", **GIVEN)
    assert without.summary.filtered is None and edits_caption(without) is None
    assert without.summary == first.summary.model_copy(update={"filtered": None})


def test_what_is_not_known_is_not_asked_for(
    model: BertForSequenceClassification, single: Dataset, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "antonyms", lambda *_: frozenset())
    result = run(model, single, Pwws())
    found = result.summary.filtered
    assert found is not None and found.unknown == ["antonyms", "similarity"] and set(found.failed) <= {"words"}
    assert "The records say nothing of antonyms and similarity, so the filter did not check that." in " ".join(
        printed(render({"m": result})).split()
    )


def test_the_table_has_both_accuracies(model: BertForSequenceClassification, single: Dataset, run: Run) -> None:
    result = run(model, single, Pwws(), **GIVEN)
    assert warning_of(result) is None and result.summary.filtered is not None
    text = printed(render({"m": result}))
    row = next(line for line in text.splitlines() if line.startswith("│ m "))
    cells = [cell.strip() for cell in row.split("│")[1:-1]]
    both = (result.summary.robust_accuracy, result.summary.filtered.robust_accuracy)
    assert cells[3:5] == [f"{100 * each:.1f}" for each in both] and both[0] < both[1]
    said = "Filtered: robust accuracy if an edit counts only where at most 30 % of the words change, the cosine is"
    assert said in " ".join(text.split())
    free = run(model, single, Pwws(), meaning_filter="none", **GIVEN)
    assert "Filtered:" not in printed(render({"m": free}))


def test_filters_as_texts() -> None:
    given = "words=0.3,similarity=0.8,fluency=2,antonyms=no"
    settings = AttackSettings.checked({"meaning_filter": given})
    assert settings.meaning_filter == MeaningFilter(words=0.3, similarity=0.8, fluency=2, antonyms=False)
    assert settings.words() == ["--meaning-filter", given]
    assert AttackSettings().words() == []
    assert AttackSettings.checked({"meaning_filter": {"words": 0.3}}).meaning_filter == MeaningFilter(words=0.3)
    assert "meaning_filter" not in AttackSettings.checked({"meaning_filter": "none"}).deciding()
    assert in_words(settings.meaning_filter) == (
        "at most 30 % of the words change, the cosine is at least 0.8, the perplexity is at most 2 times the "
        "original's and no word is replaced by a known antonym"
    )
    for wrong, said in (
        ("words", "--meaning-filter is none, or conditions of an edit"),
        ("words=3", "meaning_filter.words: input should be less than or equal to 1, got 3"),
        ("word=0.3", "meaning_filter.word: no such entry; did you mean words"),
    ):
        with pytest.raises(RunError, match=said):
            AttackSettings.checked({"meaning_filter": wrong})
