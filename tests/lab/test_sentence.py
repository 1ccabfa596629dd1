"""What a person types, and what comes back."""

from __future__ import annotations

import pytest

from rosewood.errors import DataError
from rosewood.lab.playground.served_runs import ask, typed
from tiny_playground import tiny_served, tiny_task

PAIR = tiny_task(("premise", "hypothesis"))


@pytest.mark.parametrize("nothing", ["", "  \n\t", None])
def test_nothing_is_refused(nothing: str | None) -> None:
    with pytest.raises(DataError, match=r"^There is nothing to read yet: type the text first\.$"):
        typed(tiny_task(), [nothing])
    with pytest.raises(DataError, match=r": type the hypothesis first\.$"):
        typed(PAIR, ["a film", nothing])
    with pytest.raises(DataError, match=r": type the premise and the hypothesis first\.$"):
        typed(PAIR, [nothing, nothing])


def test_texts_are_cleaned_like_those_of_the_training() -> None:
    task = tiny_task().model_copy(update={"replace": {"<br />": " "}})
    assert typed(task, [" good<br />film \n"]) == {"text": "good film"}
    assert typed(task, ["half a pair \ud83d here"]) == {"text": "half a pair ? here"}
    assert typed(PAIR, ["a", "b"]) == {"premise": "a", "hypothesis": "b"}


def test_every_run_answers() -> None:
    answers = ask(tiny_served(tiny_task()), {"text": "good film"})
    assert [answer.run for answer in answers] == ["plain", "robust"]
    for answer in answers:
        assert sum(answer.probabilities) == pytest.approx(1) and answer.cut == {}
        assert answer.probabilities[answer.prediction] == max(answer.probabilities)


def test_what_is_not_read_is_told() -> None:
    runs = tiny_served(tiny_task(), max_length=8)  # [CLS], six words, [SEP]
    (fits, _), (too_long, _) = ask(runs, {"text": "good " * 5 + "film"}), ask(runs, {"text": "good " * 500 + "film"})
    assert fits.cut == {}
    assert too_long.cut == {"text": len("good " * 6) - 1} and too_long.max_length == 8
    assert too_long.probabilities == pytest.approx(ask(runs, {"text": "good " * 6})[0].probabilities)


def test_of_a_pair_the_longer_text_is_cut() -> None:
    (answer, _) = ask(tiny_served(PAIR, max_length=9), {"premise": "good " * 50, "hypothesis": "film"})
    assert answer.cut == {"premise": len("good " * 5) - 1}


@pytest.mark.parametrize("text", ["فيلم جيد", "<script>alert(1)</script>", "!!!", "🎬", "\x00", "[SEP] [CLS]"])
def test_any_text_gets_an_answer(text: str) -> None:
    for answer in ask(tiny_served(tiny_task()), typed(tiny_task(), [text])):
        assert sum(answer.probabilities) == pytest.approx(1)
