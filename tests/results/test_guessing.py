"""Who is at guessing: judged by the interval of the clean accuracy against the most frequent label, in one place."""

import pytest

from rosewood.results import Evaluation, GroupResult, SetResult
from rosewood.results.evaluation import at_guessing, guessed_sets, is_guessing, majority_of, majority_share
from rosewood.tensors.statistics import wilson_interval


def result(right: int, classes: dict[str, int], role: str = "clean", name: str = "test") -> SetResult:
    examples = sum(classes.values())
    groups = [
        GroupResult(kind="class", group=label, examples=count, accuracy=0.5, interval=(0, 1))
        for label, count in classes.items()
    ]
    return SetResult(
        name=name, role=role, examples=examples, accuracy=right / examples, groups=groups, ece=0, brier=0, nll=0,
        interval=wilson_interval(right, examples),
    )  # fmt: skip


def evaluation(*sets: SetResult) -> Evaluation:
    return Evaluation(
        model="m", task="own", size=None, seed=0, max_length=16, typo_rate=None, sets=list(sets), missing=[]
    )


def test_the_most_frequent_label_is_the_level() -> None:
    assert majority_share("aabac") == 0.6
    assert majority_share("aaa") is None, "a set of one label tells nobody from guessing"
    assert majority_of(result(5, {"a": 30, "b": 10})) == 0.75
    assert majority_of(result(5, {"a": 30})) is None
    assert majority_of(result(5, {"a": 30, "b": 10}).model_copy(update={"groups": []})) is None
    several = result(5, {"a": 30, "b": 10}).model_copy(update={"groups": [], "majority": 0.6})
    assert majority_of(several) == 0.6, "of the most frequent set of labels"


@pytest.mark.parametrize(("right", "guessing"), [(507, True), (530, True), (531, False), (900, False), (300, True)])
def test_the_whole_interval_must_lie_above_it(right: int, guessing: bool) -> None:
    """At 1,000 balanced examples the low end of Wilson's interval passes 50 % between 530 and 531 that are right."""
    balanced = result(right, {"a": 500, "b": 500})
    low = wilson_interval(right, 1000)[0]
    assert (low <= 0.5) is guessing
    assert at_guessing(balanced.interval, 0.5) is guessing
    assert is_guessing(evaluation(balanced)) is guessing
    assert at_guessing(balanced.interval, None) is False


def test_clean_sets_judge_and_the_others_do_not() -> None:
    good, bad = result(900, {"a": 500, "b": 500}), result(500, {"a": 500, "b": 500}, name="other")
    noisy = result(500, {"a": 500, "b": 500}, role="noise", name="typos")
    assert not is_guessing(evaluation(good, noisy)), "falling to guessing under noise is what is measured"
    assert not is_guessing(evaluation(good, bad)) and guessed_sets(evaluation(good, bad)) == [bad]
    assert is_guessing(evaluation(bad, noisy))
    assert not is_guessing(evaluation(noisy)) and not is_guessing(evaluation())
