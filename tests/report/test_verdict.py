"""The sentence at the top: what the tests say, better or worse, and no further."""

import itertools
from pathlib import Path

import pytest

from reported_runs import write_run
from rosewood.errors import RunError
from rosewood.evaluation.evaluated_runs import load_runs
from rosewood.report.subject import Subject, subject
from rosewood.report.verdict import Verdict, verdict

NUMBERS = itertools.count()


@pytest.fixture
def said(tmp_path: Path):
    def of(baseline: str | None = None, keep_predictions: bool = True, **methods: list[int]) -> Verdict:
        folders = [
            write_run(tmp_path / f"{next(NUMBERS)}", method, seed, right)
            for method, rights in methods.items()
            for seed, right in enumerate(rights)
        ]
        if not keep_predictions:
            for folder in folders:
                (folder / "predictions-own.parquet").unlink()
        found: Subject = subject(load_runs(folders), baseline)
        return verdict(found)

    return of


def test_one_method_alone_is_described(said) -> None:
    found = said(rose=[30])
    assert found.sentence.replace("\u00a0", " ") == (
        "rose is right on 75.0 % of clean, 67.5 % of shifted, 37.5 % of adversarial and 62.5 % of noisy text; there is "
        "no other method here to compare it with."
    )
    assert list(found.remarks) == ["At most 40 examples of each set were taken.", "1 set is missing: yelp."]


def test_single_runs_are_judged_on_the_same_examples(said) -> None:
    found = said(vanilla=[24], rose=[38], same=[24], worse=[15])
    assert found.sentence == (
        "rose is better than vanilla on clean plain, imdb, poem and advglue; worse is worse than vanilla on clean "
        "plain, imdb, poem and advglue; same cannot be shown to differ from it (p < 0.05 after Holm's "
        "adjustment of 12 tests on the same examples)."
    )
    assert found.remarks[0] == "One seed each: another seed could change the picture."


def test_chance_is_called_chance(said) -> None:
    expected = (
        "{} be shown to differ from vanilla: none of {} tests on the same examples has p < 0.05 after Holm's "
        "adjustment."
    )
    assert said(vanilla=[30], rose=[31]).sentence == expected.format("rose cannot", 4)
    assert said(vanilla=[30], a=[31], b=[29]).sentence == expected.format("No method can", 8)


def test_without_predictions_or_a_baseline_nothing_is_claimed(said) -> None:
    assert said(vanilla=[20], rose=[40], keep_predictions=False).sentence.startswith(
        "No difference from vanilla can be tested: each method has a single run"
    )
    assert said(smart=[20], rose=[40]).sentence == (
        "smart and rose stand side by side; without a baseline no difference between them is tested."
    )
    assert "than smart" in said("smart", smart=[20], rose=[40]).sentence


def test_several_seeds_are_judged_over_seeds_in_both_directions(said) -> None:
    found = said(vanilla=[24, 25, 24], rose=[34, 35, 35], worse=[15, 15, 16], single=[30])
    first, second, third = found.sentence.split("; ")
    assert first.startswith("rose is better than vanilla on clean, shift, adversarial and noise")
    assert second.startswith("worse is worse than vanilla on clean, shift, adversarial and noise")
    assert "worse" not in first and "better" not in second
    assert third.startswith("single cannot be shown to differ from it (p < 0.05 after Holm's adjustment of ")
    assert third.endswith("one-tailed tests over seeds in either direction).")
    assert "One seed each: another seed could change the picture." not in found.remarks
    assert said(vanilla=[24], rose=[34, 35]).sentence == (
        "No difference from vanilla can be tested: it takes two seeds or more of both methods that differ."
    )


def test_a_baseline_that_is_not_there_is_refused(said) -> None:
    with pytest.raises(RunError, match=r"no run was trained with xyz: Known: rose, vanilla\."):
        said("xyz", vanilla=[20], rose=[25])
