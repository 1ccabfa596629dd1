"""What was watched, read back as curves and tables, and drawn."""

from __future__ import annotations

import json
from itertools import pairwise
from math import inf, log10
from pathlib import Path
from typing import Any

import pytest

from rosewood.dynamics.drift import read_drift
from rosewood.dynamics.inconsistency import read_inconsistency
from rosewood.dynamics.masks import kept_by_tensor, kept_shares, mean_kept, second_order_ratios
from rosewood.report.figures.dynamics import drift, inconsistency, mask_heatmap, second_order
from rosewood.report.figures.style import drawn, save


def recorded(run: Path, name: str, *records: dict[str, Any]) -> Path:
    folder = run / "dynamics"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return run


@pytest.fixture
def rose(tmp_path: Path) -> Path:
    run = tmp_path / "rose"
    recorded(
        run,
        "masks",
        {"step": 1, "kept": {"layer 0": {"a": 1, "b": 0}, "layer 1": {"a": 1}}},
        {
            "step": 2,
            "kept": {"layer 0": {"a": 0.5, "b": 0.5}},
            "second_ratio": {"layer 0": {"a": 0.1, "b": 10, "c": 5}, "layer 1": {"a": "inf"}},
        },
    )
    recorded(
        run,
        "drift",
        {"step": 1, "encoder": 0.1, "layers": {"embeddings": 0.0, "layer 0": 0.2}},
        {"step": 2, "encoder": 0.2, "layers": {"embeddings": 0.05, "layer 0": 0.3}},
    )
    return recorded(run, "inconsistency", *({"step": n, "compared": 10, "differing": 5 - n} for n in (1, 2, 3, 4)))


def test_kept_shares_by_layer(rose: Path) -> None:
    shares = kept_shares(rose)
    assert (shares.steps, shares.layers) == ([1, 2], ["layer 0", "layer 1"])
    assert shares.values == [[0.5, 0.5], [1.0, None]]
    assert mean_kept(shares) == {"layer 0": 0.5, "layer 1": 1.0}
    by_tensor = kept_by_tensor(rose)
    assert (by_tensor.layers, by_tensor.values) == (["a", "b"], [[1.0, 0.5], [0.0, 0.5]])
    figure = mask_heatmap([shares, shares])
    assert [[list(row) for row in trace.z] for trace in figure.data] == [shares.values] * 2
    assert (figure.data[0].zmin, figure.data[0].zmax) == (0, 1)
    assert [note.text for note in figure.layout.annotations] == ["rose", "rose"]


def test_second_order_ratios_are_medians(rose: Path, tmp_path: Path) -> None:
    ratios = second_order_ratios(rose)
    assert ratios is not None
    assert (ratios.steps, ratios.values) == ([2], [[5.0], [inf]])
    assert [list(row) for row in second_order([ratios]).data[0].z] == [[log10(5)], [None]]
    first = recorded(tmp_path / "first", "masks", {"step": 1, "kept": {"layer 0": {"a": 1}}})
    assert second_order_ratios(first) is None


def test_drift_over_steps_and_layers(rose: Path) -> None:
    found = read_drift(rose)
    assert (found.steps, found.encoder) == ([1, 2], [0.1, 0.2])
    assert found.last() == {"encoder": 0.2, "embeddings": 0.05, "layer 0": 0.3}
    over_steps, at_end = drift([found]).data
    assert (list(over_steps.x), list(over_steps.y)) == ([1, 2], [0.1, 0.2])
    assert list(at_end.y) == [0.05, 0.3]


def test_runs_with_other_layers_are_drawn_by_name(rose: Path, tmp_path: Path) -> None:
    other = recorded(tmp_path / "other", "drift", {"step": 1, "encoder": 0.1, "layers": {"layer 0": 0.2, "top": 0.1}})
    figure = drift([read_drift(rose), read_drift(other)])
    assert list(figure.layout.xaxis2.ticktext) == ["embeddings", "layer 0", "top"]
    assert [list(trace.x) for trace in figure.data if trace.xaxis == "x2"] == [[0, 1], [1, 2]]


def test_inconsistency_is_cumulative(rose: Path) -> None:
    found = read_inconsistency(rose)
    assert found.shares == pytest.approx([0.4, 0.35, 0.3, 0.25])
    assert found.at() == {4: pytest.approx(0.25)}, "the paper's milestones are beyond the run"
    assert found.at([2, 3, 100]) == {2: pytest.approx(0.35), 3: pytest.approx(0.3), 4: pytest.approx(0.25)}
    assert list(inconsistency([found]).data[0].y) == found.shares


def test_a_milestone_before_the_first_record_has_no_value(tmp_path: Path) -> None:
    run = recorded(tmp_path, "inconsistency", *({"step": n, "compared": 4, "differing": 1} for n in (10, 20)))
    assert read_inconsistency(run).at([5, 10]) == {10: 0.25, 20: 0.25}


@pytest.mark.parametrize("count", [1, 199, 200, 201, 1999, 2000, 2001])
def test_of_very_many_steps_some_are_drawn_and_the_last(count: int) -> None:
    steps = list(range(1, count + 1))
    shown = steps[drawn(steps)]
    assert shown[-1] == count and min(count, 100) <= len(shown) <= 200
    assert len({after - before for before, after in pairwise(shown)}) <= 1


def test_every_figure_becomes_a_page(rose: Path, tmp_path: Path) -> None:
    ratios = second_order_ratios(rose)
    assert ratios is not None
    figures = {
        "masks": mask_heatmap([kept_shares(rose)]),
        "ratio": second_order([ratios]),
        "drift": drift([read_drift(rose)]),
        "inconsistency": inconsistency([read_inconsistency(rose)]),
    }
    for name, figure in figures.items():
        assert save(figure, tmp_path / f"{name}.html").read_bytes().startswith(b"<!doctype html>")
