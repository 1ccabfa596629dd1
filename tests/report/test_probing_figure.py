"""The scatter of a probe shows every run where its score is, and what the runs come to."""

from __future__ import annotations

import pytest

from rosewood.lab.probing import ProbedRecipe, ProbedRun, Probing
from rosewood.report.figures.lab import probing_figure

SCORES = {
    ("probe-the", "vanilla"): [-1.0, -0.5, 0.9],
    ("probe-the", "rose"): [0.5],
    ("probe-length", "rose"): [0.1, 0.1],
}


def probing() -> Probing:
    accuracies = {"validation_accuracy": 1.0, "ambiguous_accuracy": None}
    return Probing(
        model="minilm",
        runs=[
            ProbedRun(task=task, label=label, seed=seed, matthews=value, matthews_in_domain=None, **accuracies)
            for (task, label), values in SCORES.items()
            for seed, value in enumerate(values)
        ],
        recipes=[
            ProbedRecipe(
                task=task,
                label=label,
                seeds=list(range(len(values))),
                mean=sum(values) / len(values),
                median=sorted(values)[len(values) // 2],
                interval=(-0.9, 0.9) if len(values) > 1 else None,
                in_domain_mean=None,
                **accuracies,
            )
            for (task, label), values in SCORES.items()
        ],
    )


def test_every_run_is_a_point_beside_its_fellows() -> None:
    figure = probing_figure(probing())
    assert [note.text for note in figure.layout.annotations] == ["probe-the", "probe-length"]
    assert list(figure.layout.xaxis.ticktext) == list(figure.layout.xaxis2.ticktext) == ["vanilla", "rose"]
    by_name = {name: [trace for trace in figure.data if trace.name.startswith(name)] for name in ("run", "med", "mean")}
    assert [list(trace.y) for trace in by_name["run"]] == list(SCORES.values())
    assert [trace.xaxis for trace in by_name["run"]] == ["x", "x", "x2"]
    for trace, place in zip(by_name["run"], [0, 1, 1], strict=True):
        assert len(set(trace.x)) == len(trace.y) and {round(x) for x in trace.x} == {place}
    assert [list(trace.y) for trace in by_name["med"]] == [[-0.5, -0.5], [0.5, 0.5], [0.1, 0.1]]
    assert [trace.y[0] for trace in by_name["mean"]] == pytest.approx([-0.2, 0.5, 0.1])
    first, single, _ = (trace.error_y for trace in by_name["mean"])
    assert (first.array[0], first.arrayminus[0]) == pytest.approx((1.1, 0.7)) and not single.visible
    assert [trace.name for trace in figure.data if trace.showlegend] == ["run", "median", "mean, 95 % interval"]
    low, high = figure.layout.yaxis.range
    assert low < -1 and high > 1
