"""Constraints hold on every text that any attack finds, as its record alone shows."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import Dataset
from test_engine import ATTACKS, OTHER_FORMS
from transformers import BertForSequenceClassification

from rosewood.attacks.genetic import Genetic
from rosewood.attacks.gradient import Gradient
from rosewood.attacks.pwws import Pwws
from rosewood.attacks.runner.attack import Attack
from rosewood.attacks.runner.constraints import CONSTRAINTS, Constraint, Similarity, constraint, constraints_of
from rosewood.attacks.runner.scores import Scores
from rosewood.attacks.runner.search import Resources, Target
from rosewood.attacks.runner.slopes import BACKWARD
from rosewood.attacks.textbugger import TextBugger
from rosewood.config.settings import AttackSettings
from rosewood.errors import RunError
from rosewood.results import AttackResult
from rosewood.words.constraints import is_stop_word
from rosewood.words.language_models import MaskedLM
from rosewood.words.text import Words
from tiny_attack import ENTRIES

Run = Callable[..., AttackResult]
FORMS = ATTACKS | OTHER_FORMS


def letters(texts: Sequence[str]) -> np.ndarray:
    """An encoder: how often a text has each letter."""
    return np.array([[text.count(letter) for letter in "abcdefghij"] + [1.0] for text in texts])


def vowels(words: Sequence[str]) -> list[str]:
    """A tagger: whether a word has a vowel."""
    return ["V" if set(word) & set("aei") else "C" for word in words]


class Counting:
    """A language model of sorts: the more different letters, the more surprising."""

    def surprise(self, texts: Sequence[str]) -> np.ndarray:
        return np.array([len(set(text)) / 4 for text in texts])


RULES = {
    "words_share": constraint("words_share", 0.2),
    "stop_words": constraint("stop_words"),
    "part_of_speech": constraint("part_of_speech"),
    "similarity": constraint("similarity", 0.9),
    "fluency": constraint("fluency", 1.2),
}


def broken(folder: Path) -> list[dict[str, Any]]:
    """What the file alone says of the broken examples."""
    lines = (folder / "examples.jsonl").read_text(encoding="utf-8").splitlines()
    return [line for line in map(json.loads, lines) if line["status"] == "broken"]


def holds(name: str, example: dict[str, Any]) -> bool:
    """Whether the text that was found satisfies the rule of that name."""
    before, after = example["texts"]["text"], example["adversarial"]
    changes = [(change["before"], change["after"]) for change in example["changes"]]
    one, two = letters([before, after])
    return {
        "words_share": len(changes) <= max(1, int(0.2 * example["words"])),
        "stop_words": not any(is_stop_word(old) for old, _ in changes),
        "part_of_speech": all(vowels([old]) == vowels([new]) for old, new in changes),
        "similarity": one @ two / np.linalg.norm(one) / np.linalg.norm(two) >= 0.9,
        "fluency": np.exp((len(set(after)) - len(set(before))) / 4) <= 1.2 + 1e-9,
    }[name]


@pytest.mark.parametrize("method", list(FORMS.values()), ids=list(FORMS))
def test_constraints_hold_on_every_found_text(
    method: Attack, model: BertForSequenceClassification, single: Dataset, run: Run, tmp_path: Path
) -> None:
    given = {"encoder": letters, "tagger": vowels, "causal_lm": Counting()}
    free = run(model, single, method, folder=tmp_path / "free", **given)
    for name, rule in RULES.items():
        bound = run(model, single, method, constraints=[rule], folder=tmp_path / name, **given)
        found = broken(tmp_path / name)
        assert all(holds(name, example) for example in found)
        assert bound.constraints == {name: vars(rule)}
        assert bound.fingerprint != free.fingerprint
        if not all(holds(name, example) for example in broken(tmp_path / "free")):
            assert [e.adversarial for e in bound.examples] != [e.adversarial for e in free.examples]
        if name in ("words_share", "similarity"):
            assert found
    run(model, single, method, constraints=list(RULES.values()), folder=tmp_path / "all", **given)
    assert all(holds(name, example) for example in broken(tmp_path / "all") for name in RULES)


@pytest.mark.parametrize("method", list(ATTACKS.values()), ids=list(ATTACKS))
def test_words_are_the_nearest_of_the_lexicon_or_the_likeliest(
    method: Attack, model: BertForSequenceClassification, single: Dataset, run: Run, masked_lm: MaskedLM
) -> None:
    free, bound = (run(model, single, method, max_candidates=most) for most in (None, 1))
    assert bound.max_candidates == 1 and bound.fingerprint != free.fingerprint
    for example in bound.examples:
        for change in example.changes if method.needs().keys() == {"lexicon"} else ():
            # A bug of TextBugger is not in the lexicon.
            assert change.after in ENTRIES.get(change.before, [])[:1] or isinstance(method, TextBugger)
    if method.needs():
        assert sum(e.queries for e in bound.examples) < sum(e.queries for e in free.examples)
        assert [e.adversarial for e in bound.examples] != [e.adversarial for e in free.examples]
    else:  # letters are no words to choose from
        assert [e.adversarial for e in bound.examples] == [e.adversarial for e in free.examples]
    assert masked_lm.most is None, "what others use is not changed"


def test_every_constraint_is_tested_here() -> None:
    assert list(RULES) == list(CONSTRAINTS)


def test_what_is_not_allowed_is_not_asked_for(model: BertForSequenceClassification, single: Dataset, run: Run) -> None:
    """A share of one word: after the first change PWWS has nothing left to ask."""
    free, bound = run(model, single, Pwws()), run(model, single, Pwws(), constraints=[constraint("words_share", 0.01)])
    for one, other in zip(free.examples, bound.examples, strict=True):
        assert other.queries <= one.queries and len(other.changes) <= 1


def test_similarity_to_the_last_text_lets_a_search_drift() -> None:
    def encoder(texts: Sequence[str]) -> np.ndarray:
        return np.array([[1.0, 0.5 * text.count("x")] for text in texts])

    text = Words.split("a b c")
    target = Target(text, 0, Scores(np.array([[1.0, 0.0]]), 0), Resources(encoder=encoder), np.random.default_rng(0))
    one, two = ("x", "b", "c"), ("x", "x", "c")
    rules: dict[str, Constraint] = {to: Similarity(0.85, to) for to in ("original", "last")}  # type: ignore[arg-type]

    def allowed(to: str, last: tuple[str, ...]) -> list[int]:
        return Target(**{**vars(target), "constraints": [rules[to]]}).allowed([one, two], last)

    assert allowed("original", text.words) == allowed("original", one) == [0]
    assert allowed("last", text.words) == [0] and allowed("last", one) == [0, 1]


def test_similarity_in_a_window_around_each_change() -> None:
    """Far from the change nothing is compared, and a text that is shorter than the window is not at all."""

    def encoder(texts: Sequence[str]) -> np.ndarray:
        return np.array([[1.0, 0.5 * text.count("x")] for text in texts])

    def allowed(text: str, window: int | None, *candidates: str) -> list[int]:
        words = Words.split(text)
        clean = Scores(np.array([[1.0, 0.0]]), 0)
        rules = [constraint("similarity", {"value": 0.88, "window": window})]
        target = Target(words, 0, clean, Resources(encoder=encoder), np.random.default_rng(0), rules)
        return target.allowed([tuple(each.split()) for each in candidates])

    one, near, far = "x b c d e f g", "x x c d e f g", "x b c d e f x"
    assert allowed("a b c d e f g", None, one, near, far) == [0]
    assert allowed("a b c d e f g", 3, one, near, far) == [0, 2]
    assert allowed("a b c d e f g", 8, one, near, far) == [0, 1, 2]


def test_nouns_and_verbs_may_change_places_where_a_setting_says_so() -> None:
    tags = {"film": "NOUN", "shoot": "VERB", "good": "ADJ", "picture": "NOUN"}
    target = Target(
        Words.split("film"),
        0,
        Scores(np.array([[1.0, 0.0]]), 0),
        Resources(tagger=lambda words: [tags[word] for word in words]),
        np.random.default_rng(0),
    )
    candidates = [("picture",), ("shoot",), ("good",)]
    for swap, expected in ((False, [0]), (True, [0, 1])):
        assert replace(target, constraints=[constraint("part_of_speech", swap)]).allowed(candidates) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["words_share=0.2", "stop-words"], {"words_share": 0.2, "stop-words": None}),
        (["similarity=0.8,to=last"], {"similarity": {"at_least": 0.8, "to": "last"}}),
        ({"similarity": {"at_least": 0.8, "to": "last"}}, {"similarity": {"at_least": 0.8, "to": "last"}}),
        ("similarity,to=last,at_least=0.8", {"similarity": {"at_least": 0.8, "to": "last"}}),
        ([constraint("fluency", 2)], {"fluency": 2.0}),
    ],
)
def test_constraints_can_be_written_in_many_ways(given: Any, expected: dict[str, Any]) -> None:
    rules = [constraint(name, settings) for name, settings in expected.items()]
    settings = AttackSettings(constraints=given)
    assert list(constraints_of(settings)) == rules
    words = iter(settings.words())
    written = [word for option, word in zip(words, words, strict=True) if option == "--constraint"]
    assert list(constraints_of(AttackSettings.checked({"constraints": written}))) == rules


@pytest.mark.parametrize("text", ["", "=0.2", "words_share=", "similarity=0.8,to", "similarity=0.8,=last"])
def test_texts_that_are_no_constraints_are_refused(text: str) -> None:
    with pytest.raises(RunError, match="a constraint is a name and its settings, such as words_share"):
        AttackSettings.checked({"constraints": [text]})
    with pytest.raises(RunError, match="the constraint fluency is there more than once"):
        AttackSettings.checked({"constraints": ["fluency=2", "fluency=3"]})


@pytest.mark.parametrize("method", list(FORMS.values()), ids=list(FORMS))
def test_queries_per_word(method: Attack, model: BertForSequenceClassification, single: Dataset, run: Run) -> None:
    free, bound = run(model, single, method), run(model, single, method, max_queries_per_word=2)
    slopes = BACKWARD * any(isinstance(each, Gradient) for each in (method, *getattr(method, "members", {}).values()))
    for one, other in zip(free.examples, bound.examples, strict=True):
        budget = 1 + 2 * other.words
        assert other.queries <= budget
        if one.queries <= budget:
            assert other.status == one.status
        else:
            assert other.status in ("broken", "out_of_queries")
            assert other.status == "broken" or other.queries >= budget - slopes
    assert bound.max_queries_per_word == 2 and bound.summary.counts.get("broken", 0) > 0
    assert bound.summary.mean_queries < free.summary.mean_queries  # type: ignore[operator]


def test_queries_per_word_are_at_least_one(model: BertForSequenceClassification, single: Dataset, run: Run) -> None:
    with pytest.raises(RunError, match="max_queries_per_word: input should be greater than or equal to 1, got 0"):
        run(model, single, TextBugger(), max_queries_per_word=0)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("similarty", 0.8, "there is no constraint 'similarty': did you mean similarity?"),
        ("similarity", 1.5, "constraint similarity.at_least: input should be less than or equal to 1, got 1.5"),
        ("similarity", {"at_leest": 0.5}, "the constraint similarity has the settings: at_least, to, window; got at_l"),
        ("similarity", {"value": 0.5, "at_least": 0.5}, "the settings: at_least, to, window; got value, at_least"),
        ("words_share", None, "the constraint words_share has the settings: at_most; got none"),
        ("stop_words", 3, "the constraint stop_words has the settings: none; got value"),
    ],
)
def test_wrong_constraints_are_refused(name: str, settings: Any, message: str) -> None:
    with pytest.raises(RunError) as error:
        constraint(name, settings)
    assert message in str(error.value)


def test_what_a_constraint_needs_is_named(model: BertForSequenceClassification, single: Dataset, run: Run) -> None:
    for name, word in (("similarity", "encoder"), ("fluency", "causal language model"), ("part_of_speech", "tagger")):
        with pytest.raises(RunError, match=f"the constraint {name} needs a .*{word}"):
            run(model, single, Genetic(min_log_ratio=None), constraints=[RULES[name]])
