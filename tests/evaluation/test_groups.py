"""Groups divide every set without rest, and their accuracies are those of their own examples."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rosewood.errors import DataError
from rosewood.evaluation.measure import by_group, group_labels, word_frequency, words_of, worst
from rosewood.results import GroupResult
from rosewood.tensors.statistics import wilson_interval


def group_of(kind: str, *texts: str, frequency: dict[str, int] | None = None) -> str:
    return group_labels([texts], [0], ["a", "b"], frequency)[kind][0]


def test_class() -> None:
    found = group_labels([("x",), ("y",), ("z",)], [1, 0, 1], ["negative", "positive"], None)
    assert found["class"] == ["positive", "negative", "positive"]
    assert list(found) == ["class", "length", "negation"]


@pytest.mark.parametrize(
    ("words", "band"),
    [
        (0, "0 to 5 words"),
        (5, "0 to 5 words"),
        (6, "6 to 10 words"),
        (10, "6 to 10 words"),
        (20, "11 to 20 words"),
        (50, "21 to 50 words"),
        (51, "51 to 200 words"),
        (200, "51 to 200 words"),
        (201, "over 200 words"),
    ],
)
def test_length_counts_words_of_all_texts(words: int, band: str) -> None:
    assert group_of("length", "word, " * words) == band
    assert group_of("length", "word . " * (words // 2), "don't " * (words - words // 2)) == band


@pytest.mark.parametrize(
    "text",
    [
        "It is not good.",
        "NEVER again",
        "doesn't work",
        "doesn’t work",
        "does n't work",
        "I cannot, nothing",
        "dont go",
        "Nobody, no-one",
        "they ain't",
        "without a doubt",
    ],
)
def test_negation(text: str) -> None:
    assert group_of("negation", text) == "negation"


@pytest.mark.parametrize(
    "text", ["", "a notable knot", "noted nonfiction", "the note, the nod", "It's wonderful", "n t"]
)
def test_no_negation(text: str) -> None:
    assert group_of("negation", text) == "no negation"


def test_negation_in_pairs() -> None:
    assert group_of("negation", "It rains.", "It is wet.") == "no negation"
    assert group_of("negation", "It never rains.", "It is wet.") == "negation in the first text"
    assert group_of("negation", "It rains.", "It isn't dry.") == "negation in the second text"
    assert group_of("negation", "It never rains.", "It isn't wet.") == "negation in both texts"


def test_rare_words() -> None:
    frequency = word_frequency(["The film, the FILM", *["film"] * 3, *["the"] * 2, "Other's other’s"])
    assert frequency == {"the": 4, "film": 5, "other's": 2}
    often = {"the": 5, "film": 90}
    assert group_of("rare words", "The film!", frequency=often) == "none"
    assert group_of("rare words", "...", frequency=often) == "none"
    assert group_of("rare words", "film " * 4 + "unseen", frequency=often) == "up to 20 %"
    assert group_of("rare words", "film " * 3 + "unseen", frequency=often) == "over 20 %"
    assert group_of("rare words", "film " * 4, "unseen", frequency=often) == "up to 20 %"
    assert group_of("rare words", "The film", frequency=dict(frequency)) == "over 20 %"


def test_columns() -> None:
    found = group_labels([("x",)] * 3, [0] * 3, ["a"], None, {"method": ["TextBugger", None, 3]})
    assert found["method"] == ["TextBugger", "(none)", "3"]
    with pytest.raises(DataError, match="the column 'length' has the name of a built-in grouping"):
        group_labels([("x",)], [0], ["a"], None, {"length": [1]})
    with pytest.raises(DataError, match="expected one group of the kind 'method' per example; got 2 for 1"):
        group_labels([("x",)], [0], ["a"], None, {"method": [1, 2]})
    with pytest.raises(DataError, match="expected one group of the kind 'class' per example; got 2 for 1"):
        group_labels([("x",)], [0, 0], ["a"], None)


def test_accuracy_by_hand_in_natural_order() -> None:
    groups = {"length": ["11 to 20 words", "6 to 10 words", "6 to 10 words", "over 200 words"], "class": list("bbab")}
    assert [tuple(dict(each).values()) for each in by_group([True, True, False, False], groups)] == [
        ("length", "6 to 10 words", 2, 0.5, wilson_interval(1, 2)),
        ("length", "11 to 20 words", 1, 1.0, wilson_interval(1, 1)),
        ("length", "over 200 words", 1, 0.0, wilson_interval(0, 1)),
        ("class", "a", 1, 0.0, wilson_interval(0, 1)),
        ("class", "b", 3, pytest.approx(2 / 3), wilson_interval(2, 3)),
    ]
    with pytest.raises(DataError, match="kind 'class' per example; got 4 for 3"):
        by_group([True] * 3, {"class": list("aabb")})


@given(st.lists(st.tuples(st.booleans(), st.text(max_size=3)), min_size=1, max_size=50))
@settings(max_examples=100, deadline=None)
def test_groups_have_the_whole_as_their_mean(rows: list[tuple[bool, str]]) -> None:
    correct = [right for right, _ in rows]
    found = by_group(np.array(correct), {"any": [name for _, name in rows]})
    assert sum(each.examples for each in found) == len(rows)
    assert sum(each.examples * each.accuracy for each in found) == pytest.approx(sum(correct))
    assert len({each.group for each in found}) == len(found)


@given(st.lists(st.tuples(st.text(max_size=60), st.text(max_size=60)), max_size=8))
@settings(max_examples=100, deadline=None)
def test_any_text_has_one_group_of_each_kind(texts: list[tuple[str, str]]) -> None:
    frequency = word_frequency(text for pair in texts for text in pair)
    found = group_labels(texts, [0] * len(texts), ["only"], frequency)
    assert {kind: len(groups) for kind, groups in found.items()} == dict.fromkeys(found, len(texts))
    assert found == group_labels(texts, [0] * len(texts), ["only"], frequency)


def test_worst() -> None:
    def group(name: str, examples: int, accuracy: float) -> GroupResult:
        return GroupResult(kind="kind", group=name, examples=examples, accuracy=accuracy, interval=(0.0, 1.0))

    groups = [group("good", 50, 0.9), group("small", 19, 0.1), group("bad", 20, 0.5), group("as bad", 99, 0.5)]
    assert worst(groups) == groups[2]
    assert worst(groups, at_least=1) == groups[1]
    assert worst(groups, at_least=100) is None
    assert worst([]) is None


def test_words() -> None:
    assert words_of("Well-known “Straße”, it’s 3.5 ...") == ["well-known", "strasse", "it's", "3", "5"]
