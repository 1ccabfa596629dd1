"""Attacks on a single sentence, against the engine that attacks whole data sets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from datasets import ClassLabel, Dataset, Features, Value

from rosewood.attacks.runner.api import attack as attack_data
from rosewood.attacks.runner.api import choose_attack
from rosewood.attacks.runner.search import Resources
from rosewood.lab.playground.served_runs import ask, attack_each
from rosewood.words.lexicon import Lexicon
from tiny_attack import ENTRIES, sentences
from tiny_playground import LABELS, telling_sentence, tiny_playground, tiny_served, tiny_task

WORDS = Resources(Lexicon.of(ENTRIES))
PWWS = choose_attack("pwws")


@pytest.mark.parametrize("name", ["pwws", "typos"])
def test_the_outcome_is_that_of_rosewood_attack(name: str) -> None:
    runs, texts = tiny_served(tiny_task(labels=("positive", "negative"))), sentences(6)
    features = Features(text=Value("string"), label=ClassLabel(names=["positive", "negative"]))
    for text in texts:
        rounds = attack_each(runs, {"text": text}, "text", choose_attack(name), WORDS)
        for run, found in zip(runs, rounds, strict=True):
            own = int(run.probabilities([(text,)])[0].argmax())
            data = Dataset.from_dict({"text": [text], "label": [own]}, features)
            options = {"lexicon": WORDS.lexicon, "max_length": 64, "max_queries": 500, "progress": False}
            (expected,) = attack_data(run.model, run.tokenizer, data, name, **options).examples  # type: ignore[arg-type]
            assert found.example == expected


def test_words_that_break_one_run_and_not_the_other_are_found(tmp_path: Path) -> None:
    playground = tiny_playground(tmp_path)
    text = telling_sentence(playground)
    found = next(each for each in attack_each(playground.runs, {"text": text}, "text", PWWS, WORDS) if each.tells_apart)
    assert found.example.status == "broken" and found.example.adversarial is not None
    assert found.those_that("falls") == [found.run] and len(found.those_that("holds")) == 1
    before = {answer.run: answer.prediction for answer in ask(playground.runs, {"text": text})}
    for run, reply in zip(playground.runs, found.replies, strict=True):
        np.testing.assert_allclose(
            reply.answer.probabilities, run.probabilities([(found.example.adversarial,)])[0], atol=1e-6
        )
        assert (reply.outcome == "holds") == (reply.answer.prediction == before[run.name])


def test_a_run_that_is_wrong_is_not_attacked() -> None:
    runs = tiny_served(tiny_task())
    text = next(t for t in sentences(20) if len({a.prediction for a in ask(runs, {"text": t})}) == 2)
    _, robust = ask(runs, {"text": text})
    rounds = attack_each(runs, {"text": text}, "text", PWWS, WORDS, label=robust.prediction)
    assert rounds[0].example.status == "wrong" and rounds[0].replies == [] and rounds[0].example.queries == 1
    assert rounds[1].example.status != "wrong"
    for reply in rounds[1].replies[:1]:
        assert reply.outcome == "wrong before"
    assert {found.example.status for found in attack_each(runs, {"text": text}, "text", PWWS, WORDS)} <= {
        "broken",
        "robust",
    }


def test_the_budget_holds_and_progress_is_told() -> None:
    runs = tiny_served(tiny_task())
    told: list[tuple[str, int]] = []
    text = " ".join(sentences(3))
    rounds = attack_each(
        runs, {"text": text}, "text", PWWS, WORDS, None, 500, lambda run, queries: told.append((run, queries))
    )
    for found in rounds:
        assert [queries for run, queries in told if run == found.run][-1] == found.example.queries > 1
    assert all(not run.model._forward_pre_hooks for run in runs)
    for found in attack_each(runs, {"text": text}, "text", PWWS, WORDS, max_queries=1):
        assert (found.example.status, found.example.queries) == ("out_of_queries", 1)


def test_only_the_chosen_text_of_a_pair_changes() -> None:
    task = tiny_task(("premise", "hypothesis"), LABELS)
    runs = tiny_served(task)
    broken = 0
    for one, two in zip(sentences(6, seed=2), sentences(6, seed=3), strict=True):
        texts = {"premise": one, "hypothesis": two}
        for found in attack_each(runs, texts, "premise", PWWS, WORDS):
            assert found.example.texts == texts
            if found.example.adversarial is not None:
                broken += 1
                assert "".join(before for before, _ in found.example.aligned) == one
                own = next(run for run in runs if run.name == found.run)
                assert own.probabilities([(found.example.adversarial, two)])[0].argmax() != found.example.label
    assert broken > 0


def test_a_text_without_words_is_unbroken() -> None:
    for found in attack_each(tiny_served(tiny_task()), {"text": "!!!"}, "text", PWWS, WORDS):
        assert (found.example.status, found.example.words) == ("robust", 0)
