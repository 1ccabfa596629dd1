"""Each figure of an evaluation shows the numbers that the evaluation has, and nothing where it has none."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from reported_runs import attack_result, evaluation
from rosewood.comparison.runs import EvaluatedRun
from rosewood.comparison.statistics import seed_interval, t_interval
from rosewood.report.figures.evaluation import (
    anomalies,
    anomaly_scores,
    calibration,
    groups,
    noise_curves,
    noise_kinds,
    perspectives,
    reliability,
    robust_accuracy,
    sets,
    trade_off,
)
from rosewood.results import AttackSummary, Evaluation

METHODS = {"vanilla": [evaluation(30)], "rose": [evaluation(32), evaluation(36)]}
BARE = Evaluation(
    model="m", task="t", size=None, seed=0, max_length=None, typo_rate=None, sets=evaluation().sets[:1], missing=[]
)


def bare() -> dict[str, list[Evaluation]]:
    """An evaluation of version 1: no bins, no groups, one set."""
    only = BARE.sets[0].model_copy(update={"reliability": [], "groups": [], "worst": None})
    return {"vanilla": [BARE.model_copy(update={"sets": [only]})]}


def seeds_of(methods: Mapping[str, Sequence[Evaluation]]) -> dict[str, list[EvaluatedRun]]:
    """Each evaluation as another seed of its method."""
    return {
        method: [EvaluatedRun(Path("run"), method, seed, each) for seed, each in enumerate(evaluations)]
        for method, evaluations in methods.items()
    }


def on_tasks(method: str, *accuracies: Mapping[str, int]) -> list[EvaluatedRun]:
    """For each seed: task -> how many of 40 are right on its clean set."""
    return [
        EvaluatedRun(Path("run"), method, seed, evaluation(right).model_copy(update={"task": task}))
        for seed, rights in enumerate(accuracies)
        for task, right in rights.items()
    ]


def test_perspectives_are_the_means_of_the_evaluation() -> None:
    figure = perspectives(seeds_of(METHODS))
    assert figure is not None and list(figure.layout.yaxis.ticktext) == ["clean", "shift", "adversarial", "noise"]
    vanilla = {each.name: each for each in METHODS["vanilla"][0].means}
    assert list(figure.data[0].x) == pytest.approx(
        [100 * vanilla[role].value for role in ("clean", "shift", "adversarial", "noise")]
    )
    low, high = vanilla["shift"].interval or (0, 0)
    assert figure.data[0].error_x.array[1] == pytest.approx(100 * (high - vanilla["shift"].value))
    assert figure.data[0].error_x.arrayminus[1] == pytest.approx(100 * (vanilla["shift"].value - low))
    assert figure.data[1].x[0] == pytest.approx(85), "the mean of 32 and 36 of 40"
    assert perspectives(seeds_of(bare())) is None, "one perspective alone compares nothing"


def test_tasks_are_averaged_within_a_seed_and_are_no_seeds_themselves() -> None:
    rights = [{"sst2": 36, "rte": 22}, {"sst2": 38, "rte": 24}, {"sst2": 37, "rte": 25}]
    figure = perspectives({"vanilla": on_tasks("vanilla", *rights)})
    assert figure is not None and figure.layout.xaxis.title.text == "mean accuracy over 2 tasks in %"
    by_seed = [sum(each.values()) / 80 for each in rights]
    (low, high), middle = t_interval(by_seed), sum(by_seed) / 3
    assert figure.data[0].x[0] == pytest.approx(100 * middle)
    assert figure.data[0].error_x.array[0] == pytest.approx(100 * (high - middle))
    assert figure.data[0].error_x.arrayminus[0] == pytest.approx(100 * (middle - low))


def test_the_interval_of_a_single_seed_is_that_of_its_examples() -> None:
    figure = perspectives({"vanilla": on_tasks("vanilla", {"sst2": 34, "rte": 22})})
    assert figure is not None and figure.data[0].x[0] == pytest.approx(70)
    assert figure.data[0].error_x.array[0] == pytest.approx(10 / 2**0.5), "two independent intervals of ±10 points"


def test_a_task_that_a_method_lacks_moves_no_dot() -> None:
    vanilla = on_tasks("vanilla", {"sst2": 36, "rte": 22}, {"sst2": 38, "rte": 24})
    figure = perspectives({"vanilla": vanilla, "rose": on_tasks("rose", {"sst2": 36}, {"sst2": 38})})
    assert figure is not None and figure.layout.xaxis.title.text == "accuracy in %"
    assert list(figure.data[0].x) == list(figure.data[1].x) and figure.data[0].x[0] == pytest.approx(92.5)


def test_a_seed_that_lacks_a_task_is_left_out() -> None:
    figure = perspectives({"vanilla": on_tasks("vanilla", {"sst2": 36, "rte": 22}, {"sst2": 38})})
    assert figure is not None and figure.data[0].x[0] == pytest.approx(72.5)


def test_a_perspective_that_some_task_lacks_says_so() -> None:
    runs = on_tasks("vanilla", {"sst2": 36, "rte": 22})
    clean = [each for each in runs[1].evaluation.sets if each.role != "adversarial"]
    runs[1] = runs[1]._replace(evaluation=runs[1].evaluation.model_copy(update={"sets": clean}))
    figure = perspectives({"vanilla": runs})
    assert figure is not None
    assert list(figure.layout.yaxis.ticktext) == ["clean", "shift", "adversarial, 1 of 2 tasks", "noise"]


def test_sets_of_a_role() -> None:
    figure = sets(METHODS, "shift")
    assert figure is not None and list(figure.layout.yaxis.ticktext) == ["imdb", "poem"]
    assert list(figure.data[0].x) == pytest.approx([65, 70])
    assert sets(bare(), "shift") is None


def test_noise_curves_begin_without_noise_and_share_their_range() -> None:
    assert noise_kinds(METHODS) == ["some_typos"] and noise_kinds(bare()) == []
    figure = noise_curves(METHODS, "some_typos")
    assert figure.layout.title.text == "some typos"
    assert list(figure.data[0].x) == [0.0, 0.1, 0.4] and list(figure.data[0].y) == pytest.approx([75, 70, 55])
    assert figure.data[1].y[0] == pytest.approx(85) and figure.data[1].error_y.array[0] == 0, "two seeds: no interval"
    three = {"rose": [evaluation(right) for right in (32, 36, 34)]}
    interval = seed_interval([0.8, 0.9, 0.85])
    assert interval is not None
    whisker = noise_curves(three, "some_typos").data[0].error_y.array[0]
    assert whisker == pytest.approx(100 * (interval[1] - 0.85))
    low, high = figure.layout.yaxis.range
    assert low < 55 and high > 85


def test_reliability_pools_the_bins_of_seeds_and_leaves_out_empty_ones() -> None:
    figure = reliability(METHODS, "clean plain")
    assert figure is not None
    for trace in figure.data:
        assert (list(trace.x), list(trace.y)) == (pytest.approx([0.7, 0.9]), pytest.approx([0.6, 0.8]))
    assert "of 20" in figure.data[1].hovertext[0], "ten examples of either seed"
    assert reliability(bare(), "clean plain") is None


def test_calibration_errors_and_groups() -> None:
    errors = calibration(METHODS)
    assert errors is not None and set(errors.data[0].x) == {10.0} and len(errors.data[0].x) == 4
    grouped = groups(METHODS, "clean plain")
    assert grouped is not None
    assert list(grouped.layout.yaxis.ticktext) == ["class: negative", "length: 6 to 10 words"]
    assert groups(bare(), "clean plain") is None


def test_anomalies_share_their_range_also_below_chance() -> None:
    assert anomaly_scores(METHODS) == ["max_softmax", "energy"] and anomaly_scores(bare()) == []
    first, second = (anomalies(METHODS, score) for score in anomaly_scores(METHODS))
    assert list(first.data[0].x) == pytest.approx([70]) and list(second.data[0].x) == pytest.approx([45])
    assert first.layout.xaxis.range == second.layout.xaxis.range and first.layout.xaxis.range[0] < 45


def test_accuracy_before_and_under_attack() -> None:
    summary = attack_result(broken=7).summary
    figure = robust_accuracy({"pwws": {"vanilla": [summary]}}, ["vanilla"])
    assert figure is not None and list(figure.layout.yaxis.ticktext) == ["before pwws", "under pwws"]
    assert list(figure.data[0].x) == pytest.approx([100, 30])
    assert robust_accuracy({}, ["vanilla"]) is None


def test_the_trade_off_is_under_the_attack_that_breaks_most() -> None:
    def summary(robust: float) -> AttackSummary:
        facts: dict[str, Any] = {"examples": 10, "left_out": 0, "counts": {}, "clean_accuracy": 0.9, "mean_queries": 1}
        facts |= {"clean_interval": (0.8, 1.0), "robust_interval": (0.0, 1.0), "robust_accuracy_at_most": robust}
        return AttackSummary(robust_accuracy=robust, success_rate=None, changed_words=None, **facts)

    strong = {"vanilla": [summary(0.1), summary(0.3)], "rose": [summary(0.4)]}
    weak = {"vanilla": [summary(0.7)], "rose": [summary(0.8)]}
    figure = trade_off({"weak": weak, "strong": strong, "alone": {"rose": [summary(0.0)]}}, ["vanilla", "rose"])
    assert figure is not None and figure.layout.yaxis.title.text == "under strong in %"
    assert [(trace.name, trace.x[0], trace.y[0]) for trace in figure.data] == [
        ("vanilla", pytest.approx(90), pytest.approx(20)),
        ("rose", pytest.approx(90), pytest.approx(40)),
    ]
    assert trade_off({"alone": {"rose": [summary(0.0)]}}, ["vanilla", "rose"]) is None
