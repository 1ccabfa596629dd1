"""The sentence at the top: what the tests say, better or worse, and no further."""

import itertools
import shutil
from pathlib import Path

import numpy as np
import pytest

from reported_runs import attack_result, guess, save_with_predictions, write_run
from rosewood.attacks.runner.report import save_outcome
from rosewood.comparison.runs import by_method, load_runs
from rosewood.comparison.significance import KINDS, paired_tests
from rosewood.comparison.statistics import mcnemar
from rosewood.errors import RunError
from rosewood.evaluation.files import save_evaluation
from rosewood.report.subject import ComparisonVerdict, Subject, subject_of, verdict
from rosewood.results import Evaluation, LiveAttack

NUMBERS = itertools.count()


@pytest.fixture
def said(tmp_path: Path):
    def of(
        baseline: str | None = None, keep_predictions: bool = True, keep_attacks: bool = True, **methods: list[int]
    ) -> ComparisonVerdict:
        folders = [
            write_run(tmp_path / f"{next(NUMBERS)}", method, seed, right)
            for method, rights in methods.items()
            for seed, right in enumerate(rights)
        ]
        if not keep_predictions:
            for folder in folders:
                (folder / "predictions-own.parquet").unlink()
        if not keep_attacks:
            for folder in folders:
                shutil.rmtree(folder / "attacks")
        found: Subject = subject_of(load_runs(folders), baseline)
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
    """Four sets, two noises and an attack that does the same to all: seven tests for each method."""
    found = said(vanilla=[27], rose=[38], same=[27], worse=[15])
    assert found.sentence == (
        "rose is better than vanilla on clean plain, imdb, poem, advglue, typos 0.1 and typos 0.4; worse is worse than "
        "vanilla on clean plain, imdb, poem, advglue, typos 0.1 and typos 0.4; same cannot be shown to differ from it "
        "(p < 0.05 after Holm's adjustment of 21 tests on the same examples, by kind: 12 on sets, 3 under attack, 6 "
        "under noise)."
    )
    assert found.remarks[0] == "One seed each: another seed could change the picture."


def test_chance_is_called_chance(said) -> None:
    expected = (
        "{} be shown to differ from vanilla: none of {} tests on the same examples has p < 0.05 after Holm's "
        "adjustment, by kind: {} on sets, {} under attack, {} under noise."
    )
    assert said(vanilla=[30], rose=[31]).sentence == expected.format("rose cannot", 7, 4, 1, 2)
    assert said(vanilla=[30], a=[31], b=[29]).sentence == expected.format("No method can", 14, 8, 2, 4)


def test_without_predictions_or_a_baseline_nothing_is_claimed(said) -> None:
    assert said(vanilla=[20], rose=[40], keep_predictions=False).sentence == (
        "rose cannot be shown to differ from vanilla: none of 1 test on the same examples has p < 0.05 after Holm's "
        "adjustment, by kind: 1 under attack. Not tested: clean plain, imdb, poem, advglue and 2 more (the predictions "
        "were not kept: repeat rosewood evaluate RUN)."
    )
    assert said(vanilla=[20], rose=[40], keep_predictions=False, keep_attacks=False).sentence == (
        "No difference from vanilla can be tested. Not tested: clean plain, imdb, poem, "
        "advglue and 2 more (the predictions were not kept: repeat rosewood evaluate RUN); attacks (none was made: "
        "rosewood attack RUN --attack pwws)."
    )
    assert said(smart=[20], rose=[40]).sentence == (
        "smart and rose are shown side by side; without --baseline no difference between them is tested."
    )
    assert "than smart" in said("smart", smart=[20], rose=[40]).sentence


def test_several_seeds_are_judged_over_seeds_in_both_directions(said) -> None:
    found = said(vanilla=[24, 25, 24], rose=[34, 35, 35], worse=[15, 15, 16], single=[30])
    first, second = found.sentence.split("; ", 1)
    assert first.startswith("rose is better than vanilla on clean, shift, adversarial and noise")
    assert second.startswith("worse is worse than vanilla on clean, shift, adversarial and noise")
    assert "worse" not in first and "better" not in second
    assert second.endswith(
        "one-tailed tests over seeds in either direction). Not tested: ECE, AUROC and under pwws own test of rose and "
        "worse (the same in all seeds); single (both methods need two seeds or more)."
    )
    assert "One seed each: another seed could change the picture." not in found.remarks
    assert said(vanilla=[24], rose=[34, 35]).sentence == (
        "No difference from vanilla can be tested. Not tested: rose (both methods need two seeds or more)."
    )


def test_a_baseline_that_is_not_there_is_refused(said) -> None:
    with pytest.raises(RunError, match=r"no run was trained with xyz: known: rose, vanilla\."):
        said("xyz", vanilla=[20], rose=[25])


def test_noise_and_attacks_are_tested_on_the_same_examples(said, tmp_path: Path) -> None:
    """Equal on clean text, apart under attack: nine of ten examples against three."""
    folders = [write_run(tmp_path / method, method) for method in ("vanilla", "rose")]
    for folder in folders:
        shutil.rmtree(folder / "attacks")
    for folder, broken in zip(folders, (90, 20), strict=True):
        save_outcome(attack_result(broken, count=100), folder / "attacks" / "pwws-test-f")
    found = verdict(subject_of(load_runs(folders)))
    assert found.sentence.startswith("rose is better than vanilla under pwws on own test (p < 0.05 after")
    tests, untested = paired_tests(by_method(load_runs(folders)), "vanilla")
    assert untested == [] and len(tests) == 7
    under = next(each for each in tests if each.kind == "attack")
    assert (under.set, under.change.difference) == ("under pwws on own test", pytest.approx(0.7))
    assert under.p == mcnemar(np.arange(100) >= 20, np.arange(100) >= 90)


def test_many_noises_do_not_hide_what_an_attack_shows(tmp_path: Path) -> None:
    """Sets, attacks and noises are adjusted each by itself: with 20 noises beside it, p = 0.016 stays below 0.05."""
    folders = [write_run(tmp_path / method, method) for method in ("vanilla", "rose")]
    for folder, broken in zip(folders, (10, 3), strict=True):
        shutil.rmtree(folder / "attacks")
        save_outcome(attack_result(broken), folder / "attacks" / "pwws-test-f")
        found = Evaluation.load(folder / "evaluation.json")
        noise = found.sets[-1]
        more = [noise.model_copy(update={"name": f"dropped_words {number}"}) for number in range(20)]
        save_with_predictions(found.model_copy(update={"sets": [*found.sets, *more]}), folder)
    tests, _ = paired_tests(by_method(load_runs(folders)), "vanilla")
    p = 2 * 0.5**7  # seven texts that only vanilla loses, none that only rose loses
    attack = next(each for each in tests if each.kind == "attack")
    assert (attack.p, attack.adjusted) == (pytest.approx(p), pytest.approx(p)) and p < 0.05 < 27 * p
    kinds = {kind: [each for each in tests if each.kind == kind] for kind in KINDS}
    assert {kind: len(found) for kind, found in kinds.items()} == {"set": 4, "attack": 1, "noise": 22}
    assert tests[-1].set == "dropped words 19"
    for family in kinds.values():
        ps = [each.p for each in family]
        expected = [min(1, max(q * sum(other >= q for other in ps) for q in ps if q <= p)) for p in ps]
        assert [each.adjusted for each in family] == pytest.approx(expected)
    assert verdict(subject_of(load_runs(folders))).sentence.startswith("rose is better than vanilla under pwws on own")


def test_an_attack_that_was_not_made_alike_is_not_tested_and_said_to_be(said, tmp_path: Path) -> None:
    folders = [write_run(tmp_path / method, method) for method in ("vanilla", "rose")]
    other = attack_result(3).model_copy(update={"attack": "typos"})
    save_outcome(other, folders[1] / "attacks" / "typos-test-f")
    late = attack_result(3).model_copy(update={"attack": "genetic"})
    unsettled = late.summary.model_copy(update={"counts": {"out_of_time": 1}})
    for folder in folders:
        save_outcome(late.model_copy(update={"summary": unsettled}), folder / "attacks" / "genetic-test-f")
    sentence = verdict(subject_of(load_runs(folders))).sentence
    assert "none of 7 tests" in sentence
    assert sentence.endswith(
        "Not tested: under genetic on own test (it ran out of time); under typos on own test (the two runs "
        "were not attacked alike: attack both with one command)."
    )
    live = LiveAttack(attack="checked", of="clean plain", settings={}, summary=attack_result(2).summary)
    for folder in folders:
        evaluation = Evaluation.load(folder / "evaluation.json")
        save_evaluation(evaluation.model_copy(update={"attacks": [live]}), folder)
    assert "under checked on clean plain (rosewood evaluate keeps no attacked texts" in (
        verdict(subject_of(load_runs(folders))).sentence
    )


def test_a_method_at_guessing_is_not_called_better(said, tmp_path: Path) -> None:
    """It answers one label whatever it reads: on noise it keeps what vanilla loses."""
    folders = [write_run(tmp_path / "vanilla", "vanilla", right=30)]
    folders.append(guess(write_run(tmp_path / "freelb", "freelb", right=20)))
    found = verdict(subject_of(load_runs(folders)))
    assert found.sentence == (
        "No difference from vanilla can be tested. Not tested: freelb (one of the two is at guessing)."
    )
    assert found.remarks[0].startswith("freelb is at guessing (own): it has not learnt the task")
    folders = [write_run(tmp_path / f"vanilla{seed}", "vanilla", seed, 30 + seed) for seed in range(3)]
    folders += [guess(write_run(tmp_path / f"freelb{seed}", "freelb", seed, 20)) for seed in range(3)]
    folders += [write_run(tmp_path / f"rose{seed}", "rose", seed, 37 + seed) for seed in range(3)]
    found = verdict(subject_of(load_runs(folders)))
    assert "freelb is" not in found.sentence and "rose is better than vanilla" in found.sentence
    assert "freelb (one of the two is at guessing)" in found.sentence
