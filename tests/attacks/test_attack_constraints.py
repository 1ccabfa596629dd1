"""Constraints hold on every text that any attack finds, as its record alone shows."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from datasets import Dataset
from test_engine import ATTACKS
from transformers import BertForSequenceClassification

from rosewood.attacks.genetic import Genetic
from rosewood.attacks.imperceptible import Imperceptible
from rosewood.attacks.pwws import Pwws
from rosewood.attacks.runner.attack import Attack
from rosewood.attacks.runner.constraints import CONSTRAINTS, Constraint, Similarity, constraint
from rosewood.attacks.runner.example import Resources, Target
from rosewood.attacks.runner.scores import Scores
from rosewood.attacks.textbugger import TextBugger
from rosewood.errors import RunError
from rosewood.results import AttackedExample, AttackResult
from rosewood.words.constraints import is_stop_word
from rosewood.words.text import Words

Run = Callable[..., AttackResult]
EVOLUTION = Imperceptible(max_edits=3, strategy="evolution", population=4)


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


def holds(name: str, example: AttackedExample) -> bool:
    """Whether the text that was found satisfies the rule of that name."""
    before, after = example.texts["text"], str(example.adversarial)
    changes = example.changes
    one, two = letters([before, after])
    return {
        "words_share": len(changes) <= max(1, int(0.2 * example.words)),
        "stop_words": not any(is_stop_word(change.before) for change in changes),
        "part_of_speech": all(vowels([change.before]) == vowels([change.after]) for change in changes),
        "similarity": one @ two / np.linalg.norm(one) / np.linalg.norm(two) >= 0.9,
        "fluency": np.exp((len(set(after)) - len(set(before))) / 4) <= 1.2 + 1e-9,
    }[name]


@pytest.mark.parametrize("method", [*ATTACKS.values(), EVOLUTION], ids=[*ATTACKS, "evolution"])
def test_constraints_hold_on_every_found_text(
    method: Attack, model: BertForSequenceClassification, single: Dataset, run: Run
) -> None:
    given = {"encoder": letters, "tagger": vowels, "causal_lm": Counting()}
    free = run(model, single, method, **given)
    for name, rule in RULES.items():
        bound = run(model, single, method, constraints=[rule], **given)
        found = [example for example in bound.examples if example.status == "broken"]
        assert all(holds(name, example) for example in found)
        assert bound.constraints == {name: vars(rule)}
        assert bound.fingerprint != free.fingerprint
        broken = [example for example in free.examples if example.status == "broken"]
        if not all(holds(name, example) for example in broken):
            assert [e.adversarial for e in bound.examples] != [e.adversarial for e in free.examples]
        if name in ("words_share", "similarity"):
            assert found
    both = run(model, single, method, constraints=list(RULES.values()), **given)
    for example in both.examples:
        assert example.status != "broken" or all(holds(name, example) for name in RULES)


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


def test_queries_per_word(model: BertForSequenceClassification, single: Dataset, run: Run) -> None:
    free, bound = run(model, single, TextBugger()), run(model, single, TextBugger(), max_queries_per_word=2)
    for one, other in zip(free.examples, bound.examples, strict=True):
        assert other.queries <= 1 + 2 * other.words
        assert other.status == (one.status if one.queries <= 1 + 2 * one.words else "out_of_queries")
    assert bound.max_queries_per_word == 2 and bound.summary.counts["out_of_queries"] > 0
    with pytest.raises(RunError, match="max_queries_per_word: input should be greater than or equal to 1, got 0"):
        run(model, single, TextBugger(), max_queries_per_word=0)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("similarty", 0.8, "there is no constraint 'similarty': did you mean similarity?"),
        ("similarity", 1.5, "constraint similarity.at_least: input should be less than or equal to 1, got 1.5"),
        ("similarity", {"at_leest": 0.5}, "the constraint similarity has the settings: at_least, to; got at_leest"),
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
