"""The interval of a mean is that of its set if it has one, and holds the truth as often as it says."""

import numpy as np
import pytest

from rosewood.evaluation.measure import mean_interval, means
from rosewood.results import AppliedNoise, SetResult
from rosewood.tensors.statistics import wilson_interval


def result(right: int, examples: int, noise: AppliedNoise | None = None) -> SetResult:
    return SetResult(
        name=f"{right} of {examples}",
        role="noise" if noise else "shift",
        examples=examples,
        accuracy=right / examples,
        interval=wilson_interval(right, examples),
        ece=0.1,
        brier=0.1,
        nll=0.1,
        noise=noise,
    )


def test_one_set_has_its_own_interval() -> None:
    assert mean_interval([result(30, 40)]) == pytest.approx(wilson_interval(30, 40), abs=1e-12)
    (shift, *_) = means([result(30, 40)], [], [])
    assert shift.interval == pytest.approx(wilson_interval(30, 40), abs=1e-12)


def test_two_sets_by_hand() -> None:
    (low_a, high_a), (low_b, high_b) = wilson_interval(30, 40), wilson_interval(9, 10)
    low, high = mean_interval([result(30, 40), result(9, 10)])
    assert low == pytest.approx(0.825 - np.hypot(0.75 - low_a, 0.9 - low_b) / 2, abs=1e-12)
    assert high == pytest.approx(0.825 + np.hypot(high_a - 0.75, high_b - 0.9) / 2, abs=1e-12)


def test_noises_share_their_examples() -> None:
    noises = [result(30, 40, AppliedNoise(kind="case", strength=strength, of="sst2")) for strength in (0.1, 0.4)]
    assert mean_interval(noises) == pytest.approx(wilson_interval(30, 40), abs=1e-12)


def test_it_holds_the_truth_in_95_of_100_draws() -> None:
    rng = np.random.default_rng(0)
    examples, truth = [35, 148, 400], [0.94, 0.4, 0.7]
    drawn = rng.binomial(examples, truth, size=(1000, 3))
    ends = np.array([mean_interval([result(int(r), n) for r, n in zip(row, examples, strict=True)]) for row in drawn])
    held = (ends[:, 0] <= np.mean(truth)) & (np.mean(truth) <= ends[:, 1])
    assert 0.93 < held.mean() < 0.98
